"""A Lightning data module of archives: periods for training, validation and test, resume, ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

try:
    from lightning.pytorch import LightningDataModule
except ImportError as error:
    raise ImportError(
        "superbatch.lightning needs Lightning: pip install 'superbatch[lightning]'"
    ) from error

from superbatch.dataset import SuperbatchDataset
from superbatch.source import Source

Make = Callable[[], Source]


class SuperbatchDataModule(LightningDataModule):
    """Training, validation and test data from sources of their own.

    Each rank makes its datasets itself, when Lightning asks for them, so that rank and world size are those of
    ``torch.distributed``. Lightning saves their states with its checkpoints; training goes on with exactly the
    batches that were left.

    Parameters
    ----------
    train, validation, test : Source or callable that returns one, optional
        Such as ``sb.ArchiveSource`` with ``valid=`` for the period. A callable is called in each rank.
    batch_size : int
    settings : mapping, optional
        Of ``SuperbatchDataset``, for training.
    evaluation : mapping, optional
        Of ``SuperbatchDataset``, for validation and test. By default each superbatch is served once, unshuffled.
        An epoch has to end: use ``coverage="once"`` in the source, or give ``batches_per_epoch``.

    Examples
    --------
    >>> import numpy as np, xarray as xr, superbatch as sb
    >>> from superbatch.lightning import SuperbatchDataModule
    >>> time = np.datetime64("2020-01-01", "ns") + np.arange(100) * np.timedelta64(1, "D")
    >>> field = xr.DataArray(np.zeros((100, 8), "f4"), {"time": time}, ("time", "x"))
    >>> def source(period, **options):
    ...     window = {"field": sb.Window(field, time=4)}
    ...     return sb.ArchiveSource(window, samples=16, valid=[period], **options)
    >>> data = SuperbatchDataModule(
    ...     train=source(slice("2020-01", "2020-02")),
    ...     validation=source(slice("2020-03", None), coverage="once"),
    ...     batch_size=8,
    ...     settings={"batches_per_epoch": 10},
    ... )
    >>> sum(len(batch["field"]) for batch in data.val_dataloader())
    37
    >>> data.teardown("fit")
    """

    def __init__(
        self,
        train: Source | Make | None = None,
        validation: Source | Make | None = None,
        test: Source | Make | None = None,
        *,
        batch_size: int = 32,
        settings: Mapping[str, Any] | None = None,
        evaluation: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._sources = {"train": train, "validation": validation, "test": test}
        self._batch_size = batch_size
        self._settings = dict(settings or {})
        self._evaluation = {"replays": 1, "shuffle": False, **(evaluation or {})}
        self._datasets: dict[str, SuperbatchDataset] = {}

    def train_dataloader(self) -> SuperbatchDataset:
        """The training batches."""
        return self._dataset("train", self._settings)

    def val_dataloader(self) -> SuperbatchDataset | list[Any]:
        """The validation batches; none where no source was given."""
        return self._dataset("validation", self._evaluation) if self._sources["validation"] else []

    def test_dataloader(self) -> SuperbatchDataset | list[Any]:
        """The test batches; none where no source was given."""
        return self._dataset("test", self._evaluation) if self._sources["test"] else []

    def teardown(self, stage: str) -> None:
        """Stop the loaders; Lightning calls this at the end, also of a run that failed."""
        datasets, self._datasets = self._datasets, {}
        for dataset in datasets.values():
            dataset.close()

    def _dataset(self, name: str, settings: Mapping[str, Any]) -> SuperbatchDataset:
        if name not in self._datasets:
            source = self._sources[name]
            if source is None:
                raise ValueError(
                    f"there is no {name} source: write SuperbatchDataModule({name}=...)"
                )
            made = source() if not hasattr(source, "bind") else source
            self._datasets[name] = SuperbatchDataset(made, self._batch_size, **settings)
        return self._datasets[name]
