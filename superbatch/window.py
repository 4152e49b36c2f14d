"""What one sample is made of: a window of each array."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from superbatch.errors import ArgumentError, shown


class _Here:
    """The type of :data:`HERE`."""

    def __repr__(self) -> str:
        return "HERE"


HERE: Final = _Here()
"""As an extent: the anchor's own site along that dimension, which is then not in the sample."""

Extent = int | slice | _Here


@dataclass(frozen=True)
class Options:
    """How a window is placed and what becomes of its values; see :class:`Window`."""

    crs: Any = None
    at: Mapping[str, str] | None = None
    edge: str = "drop"
    nan: str | float | None = None
    mask: bool = False
    dtype: np.dtype[Any] | None = None
    mean: Any = None
    std: Any = None
    dropout: float = 0.0
    decode: bool = True
    normalize: str = "loader"

    def __post_init__(self) -> None:
        check_choice("edge", self.edge, "drop", "fill")
        check_choice("normalize", self.normalize, "loader", "device")
        if (
            (not isinstance(self.nan, (int, float)) or isinstance(self.nan, bool))
            and self.nan is not None
            and (not isinstance(self.nan, str) or self.nan not in ("keep", "drop"))
        ):
            raise ArgumentError(
                f'nan={shown(self.nan)} is not known: write "keep", "drop" or a number'
            )
        for name, flag in (("mask", self.mask), ("decode", self.decode)):
            if not isinstance(flag, (bool, np.bool_)):
                raise TypeError(
                    f"{name}={shown(flag)} is neither True nor False: write one of them"
                )
        if self.at is not None and not (
            isinstance(self.at, Mapping) and all(isinstance(c, str) for c in self.at.values())
        ):
            raise TypeError(
                f"at={shown(self.at)} is no dict: write the coordinate of each dimension, such as "
                f"{{'y': 'latitude', 'x': 'longitude'}}"
            )
        known = isinstance(self.crs, (str, int, Mapping)) and not isinstance(self.crs, bool)
        if self.crs is not None and not known and not hasattr(self.crs, "to_wkt"):
            raise TypeError(
                f'crs={shown(self.crs)} is no projection: write one that pyproj knows, such as "EPSG:27700"'
            )
        if (
            isinstance(self.dropout, bool)
            or not isinstance(self.dropout, (int, float))
            or not 0 <= self.dropout < 1
        ):
            raise ArgumentError(
                f"dropout={shown(self.dropout)} is not a probability: write 0 up to below 1"
            )
        if self.dtype is not None and self.dtype.kind not in "biuf":
            raise ArgumentError(
                f"dtype={self.dtype} makes no tensor: write a number's type, such as float32"
            )


class Window:
    """What one array contributes to a sample: a box around the sample's anchor.

    The anchor is a time ``t0`` of the reference's time axis and, where there is space, a place: one of
    ``sites``, or a pixel of the reference. Each array is cut on its own grid, at its own step.

    Parameters
    ----------
    data : xarray.DataArray or zarr.Array
        The array that windows are cut from. A DataArray of ``xarray.open_zarr`` with any
        ``chunks=``; no data is read here.
    crs : str or int, optional
        The projection of the array's place coordinates, where it is not that of the anchors (``crs``
        of the reference, or ``sites.attrs["crs"]``); as ``pyproj.CRS`` takes it. Needs the extra ``geo``.
    at : mapping of str to str, optional
        For dimensions whose places are given by a 2-d coordinate: its name, such as
        ``{"y": "y_osgb", "x": "x_osgb"}``.
    edge : {"drop", "fill"}
        Windows that do not fit into the array at the edge of space: anchors that need them are not drawn, or
        what is missing is filled with ``nan`` (NaN where that is no number; 0 in integers).
    nan : {"keep", "drop"} or float, optional
        ``"drop"``: anchors whose window holds a NaN are not drawn; this reads the whole array once, and is the
        default where a dimension is ``HERE``. ``"keep"``: NaNs stay, the default elsewhere. A number takes
        the place of NaN.
    mask : bool
        Add ``<name>_mask`` to the batch: True where a value is there.
    dtype : dtype, optional
        Of the values in the batch. By default that of the array (after CF decoding: float32), or float32
        where integers are normalised.
    mean, std : number, array or DataArray, optional
        Values become ``(value - mean) / std``. A DataArray is matched by its dimensions (channels), an array
        has to broadcast against the window.
    dropout : float
        Probability that a sample has no values of this array: all are NaN, or ``nan`` where that is a number,
        or 0 in integers. Drawn from the seed, independently for each sample.
    decode : bool
        False: values as they are stored, without the CF attributes ``scale_factor``, ``add_offset`` and
        ``_FillValue``: packed integers stay integers.
    normalize : {"loader", "device"}
        Where ``mean`` and ``std`` are applied: in the loader; or when the batch is given out, on the dataset's
        device: integers then travel as integers, and need ``mask=True`` where ``dropout`` or ``edge="fill"`` can
        leave some out. A ``transform`` sees them before that.
    **extents : int, slice or HERE
        The window along each dimension, by name. An ``int`` is that many neighbouring positions: along
        a time axis (a coordinate of dates) they start at the anchor, along any other dimension they are
        centred on it, one more before the anchor than after it where the number is even. A ``slice`` of
        time offsets, such as ``slice("-30min", "2h")``, is taken around the anchor's time, both
        ends inside. On an axis with another step than the reference's, the anchor is first rounded down
        to the axis's latest stamp, so that nothing later than asked for is seen; offsets between two steps
        are moved inwards. A dimension that is not named is taken whole.

    Raises
    ------
    TypeError
        An extent is neither an int, nor a slice, nor ``HERE``.
    ArgumentError
        An int below one, a slice with a step or an open end, an option that is not known.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> sat = xr.DataArray(np.zeros((100, 64, 64), "f4"), dims=("time", "y", "x"))
    >>> Window(sat, time=12, y=32, x=32)
    Window(time=12, y=32, x=32)
    """

    def __init__(
        self,
        data: Any,
        /,
        *,
        crs: Any = None,
        at: Mapping[str, str] | None = None,
        edge: str = "drop",
        nan: str | float | None = None,
        mask: bool = False,
        dtype: Any = None,
        mean: Any = None,
        std: Any = None,
        dropout: float = 0.0,
        decode: bool = True,
        normalize: str = "loader",
        **extents: Extent,
    ) -> None:
        self.data = data
        self.options = Options(
            crs, at, edge, nan, mask, _dtype(dtype), mean, std, dropout, decode, normalize
        )
        self.extents: Mapping[str, Extent] = dict(extents)
        for dim, extent in extents.items():
            check_extent(dim, extent)

    def __repr__(self) -> str:
        inside = ", ".join(f"{dim}={extent!r}" for dim, extent in self.extents.items())
        return f"{type(self).__name__}({inside})"


class Forecast(Window):
    """A window of an archive of forecasts, which has an axis of runs and one of steps.

    Valid time is the run's time plus the step. For an anchor ``t0``, the freshest run is used that is not younger
    than ``t0 - delay``: what would have been known at ``t0``. ``t0`` is rounded down to the archive's
    own step, the smallest difference between two of its steps. In the sample, the valid
    times stand where the runs stood, and there is no dimension of steps.

    Parameters
    ----------
    data : xarray.DataArray
        With 1-d coordinates of run times (dates) and of steps: timedelta, or numbers of hours (or of what the
        attribute ``units`` of that coordinate says).
    init_time, step : str
        The dimensions of runs and of steps.
    time : int or slice of time offsets
        The valid times around ``t0``, as for :class:`Window`.
    delay : str or timedelta
        How long after its time a run is available.
    past : {"run", "freshest"}
        Valid times before ``t0``: from the same run as the rest, which rules out anchors before whose
        window that run began; or each from the freshest run not younger than that valid time.
    max_age : str or timedelta, optional
        Anchors whose run is older than this at ``t0`` are not drawn.
    accumulated : bool or sequence of labels
        Values that accumulate since the run began: differences to the step before are taken, for all
        (True) or for these labels of the only dimension with a coordinate of labels (channels). The very
        first step of a run stays as it is. Anchors that would need a difference over more than
        one step are not drawn.
    late : mapping of str to float, optional
        How much later than ``delay`` a run may come, and how probable that is, such as
        ``{"3h": 0.2, "6h": 0.1}``. Drawn from the seed, independently for each sample and each
        array. Anchors are drawn where the window is there for all of these delays.
    **options_and_extents
        As for :class:`Window`.

    Notes
    -----
    Each valid time has to lie on a step that the archive has: across a change of step (hourly, then
    three-hourly) anchors that would need a step in between are not drawn. Nothing is interpolated.
    """

    def __init__(
        self,
        data: Any,
        /,
        *,
        time: int | slice,
        init_time: str = "init_time",
        step: str = "step",
        delay: Any = "0h",
        past: str = "run",
        max_age: Any = None,
        accumulated: bool | Sequence[Any] = False,
        late: Mapping[str, float] | None = None,
        **options_and_extents: Any,
    ) -> None:
        super().__init__(data, **options_and_extents)
        check_extent("time", time)
        check_choice("past", past, "run", "freshest")
        for argument, dim in (("init_time", init_time), ("step", step)):
            if not isinstance(dim, str):
                raise TypeError(
                    f"{argument}={shown(dim)} is no name of a dimension: write a text, as the array calls it"
                )
            if dim in self.extents:
                raise ArgumentError(
                    f"Forecast names an extent for {dim!r}: its runs and steps follow from time="
                )
        if late is not None and not isinstance(late, Mapping):
            raise TypeError(
                f"late={shown(late)} is no dict: write the probability of each delay, such as {{'3h': 0.1}}"
            )
        chances = list((late or {}).values())
        if (
            not all(isinstance(c, (int, float)) and 0 <= c <= 1 for c in chances)
            or sum(chances) > 1
        ):
            raise ArgumentError(
                f"late={shown(late)}: give probabilities from 0 to 1, together at most 1"
            )
        self.time, self.init_time, self.step = time, init_time, step
        self.delay, self.past, self.max_age = delay, past, max_age
        self.accumulated, self.late = _labels(accumulated), dict(late or {})


def _dtype(given: Any) -> np.dtype[Any] | None:
    try:
        return None if given is None else np.dtype(given)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"dtype={shown(given)} is none: write a number's type, such as float32"
        ) from error


def _labels(given: Any) -> Any:
    """Which variables are accumulated: True or False for all of them, a label, or a list of labels."""
    if isinstance(given, (bool, str)):
        return given
    labels = given.tolist() if isinstance(given, np.ndarray) else given
    if isinstance(labels, (list, tuple, set)) and all(isinstance(n, (str, int)) for n in labels):
        return list(labels)
    raise TypeError(
        f"accumulated={shown(given)} names no variables: write True for all values, or labels of one dimension"
    )


def check_choice(name: str, value: object, *choices: str) -> None:
    """Raise where an argument is none of its choices."""
    if not isinstance(value, str) or value not in choices:
        raise ArgumentError(
            f"{name}={shown(value)} is not known: write {' or '.join(f'{c!r}' for c in choices)}"
        )


def check_extent(dim: str, extent: object) -> None:
    """Raise where an extent is none."""
    if isinstance(extent, _Here):
        return
    if isinstance(extent, slice):
        if extent.step is not None or extent.start is None or extent.stop is None:
            raise ArgumentError(
                f"Window({dim}={shown(extent)}): a slice needs both ends and no step, "
                f'such as {dim}=slice("-30min", "2h")'
            )
        return
    try:
        # A flag is an int to Python, and a length to nobody.
        count = None if isinstance(extent, bool) else operator.index(extent)  # type: ignore[arg-type]
    except TypeError:
        count = None
    if count is None:
        raise TypeError(
            f"Window({dim}={shown(extent)}): an extent is a number of positions, such as {dim}=12, "
            f'or a slice of time offsets, such as {dim}=slice("-30min", "2h")'
        )
    if count < 1:
        raise ArgumentError(
            f"Window({dim}={shown(extent)}): a window has at least one position: write {dim}=1 or more"
        )
