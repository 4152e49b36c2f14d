"""The superbatch at hand, and the loaders that make the next ones."""

from __future__ import annotations

import time
from collections.abc import Callable

from superbatch.errors import SuperbatchError
from superbatch.prefetch import Prefetcher, Superbatch
from superbatch.serve import Device, Host
from superbatch.source import Feed, Filled, Place, State
from superbatch.stats import Meter
from superbatch.supervise import Loaders
from superbatch.transport import Receiver

# So many superbatches in a row without a sample are no accident.
BARREN = 8


class Serving:
    """Takes superbatches from the loaders in order, and holds the one that is being served.

    Parameters
    ----------
    feed : Feed
    receiver : Receiver
        The slots; one more than loaders.
    server : Host or Device
        What batches are taken from.
    meter : Meter
    loaders, restarts : int
    timeout : float
        Seconds to wait for a superbatch.
    following : callable
        ``following(place)``: which superbatch is wanted after one.
    """

    def __init__(
        self,
        feed: Feed,
        receiver: Receiver,
        server: Host | Device,
        meter: Meter,
        loaders: int,
        restarts: int,
        timeout: float,
        following: Callable[[Place], Place | None],
    ) -> None:
        self._feed, self._receiver, self.server, self._meter = feed, receiver, server, meter
        self._count, self._restarts, self._timeout = loaders, restarts, timeout
        self._following = following
        self.loaders: Loaders | None = None
        self._prefetcher: Prefetcher | None = None
        self._current: Superbatch | None = None  # what batches are taken from
        self._slot: int | None = None  # where it lies, if it does
        self._barren: list[Filled] = []  # the latest superbatches, if they had no sample
        # Of a stream: the superbatch at hand, and what it was made of.
        self.state: tuple[int, State] | None = None

    def start(self, place: Place) -> None:
        """Start the loaders, where they do not run yet, and have them make what comes next."""
        if self.loaders is None:
            if self._feed.continues:
                self._feed.resume(*(self.state or (-1, {})))
            self.loaders = Loaders(self._feed, self._receiver, self._count, self._restarts)
            self._prefetcher = Prefetcher(
                self.loaders, self._receiver, self._count + 1, self._following, self._timeout
            )
        assert self._prefetcher is not None
        if self._current is None or self._current.place != place:
            self._prefetcher.seek(place)

    def get(self, place: Place) -> Filled:
        """Wait for a superbatch, and serve from it from now on.

        Raises
        ------
        SuperbatchError
            No sample was left of many superbatches.
        Exception
            What a loader failed with.
        """
        if self._prefetcher is None or self.loaders is None:
            raise SuperbatchError("the dataset was closed while it was iterated over")
        current = self._current
        if current is not None and current.place == place:  # a stream goes on where it was left
            return current.filled
        self.let_go()
        begin = time.monotonic()
        superbatch = self._prefetcher.get(place)
        filled = superbatch.filled
        self._current, self._slot = superbatch, superbatch.slot
        self._meter.stalled(begin, time.monotonic())
        self._meter.filled(filled)
        self._meter.restarted(self.loaders.restarted)
        if filled.state is not None:
            self.state = place[1], filled.state
        if filled.samples:
            self._barren = []
            self.server.take(superbatch.arrays, filled.samples)
            if not self.server.holds_slot:
                self._release()
        elif not self._feed.continues:
            self._barren.append(filled)
            if len(self._barren) >= BARREN:
                self.check_served(0)
        return filled

    def check_served(self, batches: int) -> None:
        """Refuse an epoch that ends without a sample.

        Raises
        ------
        SuperbatchError
            Its superbatches had none.
        """
        if batches or not self._barren:
            return
        barren = self._barren
        rejected, unread = sum(b.rejected for b in barren), sum(b.unread for b in barren)
        what = [f"reject turned down {rejected}"] * bool(rejected)
        what += [f"{unread} could not be read"] * bool(unread)
        bad = next((f", the first because of {b.bad[0]}" for b in barren if b.bad), "")
        raise SuperbatchError(
            f"no sample is left of {len(barren)} superbatches in a row: {' and '.join(what)}{bad}; "
            f"let reject pass more, or rule places out beforehand with valid="
        )

    def ready(self, place: Place) -> bool:
        """Whether a superbatch is there, without waiting."""
        return self._prefetcher is not None and self._prefetcher.ready(place)

    def ahead(self) -> tuple[int, int]:
        """Superbatches that are filled beyond the one at hand, and how many there is room for."""
        filled = self._prefetcher.filled() if self._prefetcher is not None else 0
        return filled, self._count

    def seek(self, place: Place) -> None:
        """From now on this superbatch is wanted, then those that follow it."""
        at_hand = self._current is not None and self._current.place == place
        if self._prefetcher is not None and not at_hand:
            self._prefetcher.seek(place)

    def poll(self) -> None:
        """Look for a failure, and take in what loaders have done."""
        if self._prefetcher is not None:
            self._prefetcher.poll()

    def let_go(self) -> None:
        """Nothing is served any more from the superbatch at hand; its slot can be filled again."""
        self._current = None
        self._release()

    def stop(self) -> None:
        """End the loaders."""
        loaders, self.loaders, self._prefetcher = self.loaders, None, None
        self._current = self._slot = None
        if loaders is not None:
            loaders.close()

    def _release(self) -> None:
        slot, self._slot = self._slot, None
        if slot is not None and self._prefetcher is not None:
            self._prefetcher.release(slot)
