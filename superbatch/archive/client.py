"""The Dask client of a loader process."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from concurrent.futures import CancelledError

import dask
from distributed import Client, LocalCluster
from distributed.client import ClosedClientError
from distributed.comm.addressing import get_address_host_port
from distributed.comm.core import CommClosedError
from distributed.scheduler import DEFAULT_EXTENSIONS

from superbatch.errors import ArgumentError, SuperbatchError

Cluster = str | Callable[[], Client] | None

# What Dask raises where a scheduler or a worker went away with what it held.
LOST = (CancelledError, ClosedClientError, CommClosedError)

# So many workers are tried, for so many seconds each, to find out whether they can be reached from here.
_TRIED = 4
_ANSWER_SECONDS = 1.0


def connect(cluster: Cluster, threads: int, timeout: float = 10.0) -> Client:
    """A client: threads of this process, or the cluster that is given.

    Parameters
    ----------
    cluster : str, callable or None
        None: a worker with ``threads`` threads in this process, without a socket, a dashboard or
        a limit at which it would write to disk. A str is a scheduler's address, a callable returns a client.
    threads : int
    timeout : float
        Seconds to wait for a scheduler to answer.

    Raises
    ------
    SuperbatchError
        The scheduler does not answer.
    ArgumentError
        The callable returned something else than a client.
    """
    if cluster is None:
        logging.getLogger("distributed").setLevel(logging.ERROR)
        dask.config.set(
            {
                # Blocks are only as long in memory as needed; Dask must neither spill nor pause.
                "distributed.worker.memory.target": False,
                "distributed.worker.memory.spill": False,
                "distributed.worker.memory.pause": False,
                "distributed.worker.memory.terminate": False,
                "distributed.admin.system-monitor.disk": False,
                # Dask's logs, for those who look into a cluster: as long as an error needs them.
                "distributed.admin.low-level-log-length": 100,
                "distributed.admin.system-monitor.log-length": 100,
                "distributed.worker.profile.enabled": False,
                "distributed.scheduler.http.routes": [],
                "distributed.worker.http.routes": [],
            }
        )
        local = LocalCluster(
            n_workers=1,
            threads_per_worker=threads,
            processes=False,
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            memory_limit=0,
            silence_logs=logging.ERROR,
            # Spans record each task that was ever submitted, for the dashboard that is not there.
            scheduler_kwargs={
                "extensions": {k: v for k, v in DEFAULT_EXTENSIONS.items() if k != "spans"}
            },
            extensions={},
        )
        # Dask cannot be told to open no port for its web pages, so they are closed again.
        for server in (local.scheduler, *local.workers.values()):
            server.http_server.stop()
        return Client(local, set_as_default=False)
    if callable(cluster):
        client = cluster()
        if not isinstance(client, Client):
            raise ArgumentError(
                f"dask={cluster!r} returned {type(client).__name__}: it must return a distributed.Client"
            )
        _fetch_directly(client)
        return client
    try:
        client = Client(cluster, set_as_default=False, timeout=timeout)
    except (OSError, TimeoutError, ValueError) as error:
        raise SuperbatchError(
            f"no Dask scheduler answers at {cluster} within {timeout:.0f} s: start it, or correct dask="
        ) from error
    _fetch_directly(client)
    return client


def _fetch_directly(client: Client) -> None:
    """Have samples come from the workers themselves, where they can be reached.

    By default Dask sends all results through the scheduler, which then is the first limit of a large cluster
    (benchmarks/SCALE.md). Who has set ``direct_to_workers`` of a client knows better.
    """
    if client.direct_to_workers is None:
        workers = list(client.scheduler_info(n_workers=_TRIED)["workers"])
        client.direct_to_workers = all(map(_answers, workers)) if workers else None


def _answers(address: str) -> bool:
    """Whether a worker's port can be reached from this machine."""
    try:
        with socket.create_connection(get_address_host_port(address), _ANSWER_SECONDS):
            return True
    except (OSError, ValueError):
        return False


def gone(address: str) -> SuperbatchError:
    """What to raise where Dask has lost work, in the place of its own error, which names a task."""
    return SuperbatchError(
        f"the Dask scheduler at {address} went away, or forgot the work that it was given: start it "
        f"again, or leave dask= out to load in processes of this machine"
    )
