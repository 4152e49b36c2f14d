"""Which puts of a SmartRedis client make up a batch of a producer.

Three ways of naming are known: ``batch_<i>`` with ``targets_<i>``; ``x.<rank>.<step>``, or ``x.<rank>``
that is overwritten; and datasets that are appended to a list, as SmartSim's ``TrainingDataUploader`` does.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass

_PAIR = re.compile(r"(?:(?P<prefix>[^{}]+)\.)?(?P<kind>batch|targets)_(?P<number>\d{1,18})")
_STEP = re.compile(r"(?P<name>[^{}]+)\.(?P<rank>\d{1,9})\.(?P<step>\d{1,18})")
_OVERWRITTEN = re.compile(r"(?P<name>[^{}]+)\.(?P<rank>\d{1,9})")
_REMEMBERED = 100_000


@dataclass(frozen=True)
class Batch:
    """A batch that is complete: whose it is, and the keys of its fields.

    Attributes
    ----------
    producer : str
    keys : dict of str to str
        The tensor's key by the field's name.
    """

    producer: str
    keys: dict[str, str]


class Batches:
    """Tells complete batches from the names of tensors, in the order in which they are put.

    Parameters
    ----------
    targets : bool
        Whether ``batch_<i>`` waits for ``targets_<i>``.
    unpaired : int
        Halves that are waited with; beyond, the oldest is given up and counted.

    Attributes
    ----------
    given_up : int
    """

    def __init__(self, targets: bool = True, unpaired: int = 1024) -> None:
        self._targets, self._most = targets, unpaired
        self._half: OrderedDict[tuple[str, int], str] = OrderedDict()
        self._listed: OrderedDict[str, set[str]] = OrderedDict()
        self.given_up = 0

    def tensor(self, key: str) -> Batch | None:
        """A tensor was put; the batch that it completes.

        Examples
        --------
        >>> batches = Batches()
        >>> batches.tensor("sim.batch_0")
        >>> batches.tensor("sim.targets_0")
        Batch(producer='sim', keys={'data': 'sim.batch_0', 'target': 'sim.targets_0'})
        >>> batches.tensor("u.3.17")
        Batch(producer='u.3', keys={'u': 'u.3.17'})
        """
        if found := _PAIR.fullmatch(key):
            return self._pair(key, found)
        if found := _STEP.fullmatch(key) or _OVERWRITTEN.fullmatch(key):
            name = found["name"]
            return Batch(f"{name}.{found['rank']}", {name.rpartition(".")[2]: key})
        return None

    def dataset(self, key: str) -> None:
        """A dataset was put: appended to a list, it is a new batch."""
        self._listed.pop(key, None)

    def listed(self, name: str, key: str) -> bool:
        """A dataset was appended to a list; whether that is new, and not a client's second try."""
        lists = self._listed.setdefault(key, set())
        if name in lists:
            return False
        lists.add(name)
        if len(self._listed) > _REMEMBERED:
            self._listed.popitem(last=False)
        return True

    def _pair(self, key: str, found: re.Match[str]) -> Batch | None:
        producer, kind = found["prefix"] or "smartredis", found["kind"]
        if not self._targets:
            return Batch(producer, {"data": key}) if kind == "batch" else None
        at = producer, int(found["number"])
        other = self._half.get(at)
        if other is None or other == key:
            self._half[at] = key
            if len(self._half) > self._most:
                self._half.popitem(last=False)
                self.given_up += 1
            return None
        del self._half[at]
        data, target = (key, other) if kind == "batch" else (other, key)
        return Batch(producer, {"data": data, "target": target})
