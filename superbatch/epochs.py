"""Epochs: where the training loop stands, which superbatch follows, and when an epoch is over."""

from __future__ import annotations

from dataclasses import dataclass

from superbatch.errors import SuperbatchError
from superbatch.source import Feed, Place


@dataclass
class Cursor:
    """What has been served: the next batch is number ``batch`` of pass ``number``."""

    epoch: int = 0
    superbatch: int = 0
    number: int = 0
    batch: int = 0
    served: int = 0  # batches of this epoch


class Epochs:
    """The order in which superbatches are wanted.

    Parameters
    ----------
    feed : Feed
    least : int
        Passes that are certain to be made over each superbatch.
    limit : int or None
        Batches of an epoch.

    Attributes
    ----------
    cursor : Cursor
        Where the loop stands.
    extra : int
        Batches of its epoch that came from passes beyond the least.
    """

    def __init__(self, feed: Feed, least: int, limit: int | None) -> None:
        self._feed, self._least, self.limit = feed, least, limit
        self._last: int | None = None
        self.cursor = Cursor()
        self.extra = 0

    def over_after(self, superbatch: int | None) -> None:
        """A stream has ended: nothing follows this superbatch. None: it has not, as far as is known."""
        self._last = superbatch

    def place(self, cursor: Cursor) -> Place:
        """The superbatch that the cursor stands at. A stream counts its superbatches over all epochs."""
        return (0 if self._feed.continues else cursor.epoch), cursor.superbatch

    def after(self, cursor: Cursor) -> Cursor:
        """Where the next epoch begins: at its first superbatch, or where a stream was left."""
        if not self._feed.continues:
            return Cursor(epoch=cursor.epoch + 1)
        return Cursor(cursor.epoch + 1, cursor.superbatch, cursor.number, cursor.batch)

    def ended(self, cursor: Cursor) -> bool:
        """Whether all of the cursor's epoch has been served.

        Raises
        ------
        SuperbatchError
            An epoch that had less than was asked for.
        """
        if self.limit is not None and cursor.served >= self.limit:
            return True
        if self._feed.continues:
            return self._last is not None and cursor.superbatch > self._last
        count = self._feed.superbatches(cursor.epoch)
        if count is None or cursor.superbatch < count:
            return False
        if self.limit is None:
            return True
        raise SuperbatchError(
            f"the epoch ended after {cursor.served} batches, before batches_per_epoch={self.limit}: "
            f"lower it, or raise replays"
        )

    def following(self, place: Place) -> Place | None:
        """Which superbatch is wanted after one: the next, or the first of the next epoch.

        None after the end of a stream.
        """
        epoch, index = place
        if self._feed.continues:
            return None if self._last is not None and index >= self._last else (epoch, index + 1)
        count = self._feed.superbatches(epoch)
        if count is not None and index + 1 >= count:
            return epoch + 1, 0
        if self.limit is not None:
            sure = sum(self._feed.batches(epoch, i) for i in range(index + 1)) * self._least
            if epoch == self.cursor.epoch:
                sure += self.extra
            if sure >= self.limit:
                return epoch + 1, 0
        return epoch, index + 1
