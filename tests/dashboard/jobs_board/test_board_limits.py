"""How long a page waits for what only a cluster knows; in virtual time."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from support.virtual_time import VirtualTime, as_shipped

from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape


def cores_of(cluster_takes_s: float) -> tuple[str, float]:
    """Return what the first list of jobs says of the cluster's cores, and when it is there."""
    time = VirtualTime()
    module = as_shipped("dlrover_nb.dashboard.jobs_board.boards", time)
    module.threading = SimpleNamespace(Thread=time.threads(cluster_takes_s), Lock=threading.Lock)
    capacity = Capacity((NodeShape(2.0, 1024),))
    cluster = SimpleNamespace(
        jobs=lambda: SimpleNamespace(jobs=(), error=""), core=SimpleNamespace(capacity=lambda: capacity)
    )
    board = module.Drawn().board(cluster)
    return board.totals["cores"], time.now_s()


def test_a_list_of_jobs_waits_five_seconds_for_the_capacity_and_goes_without_one_that_is_late(words) -> None:
    assert cores_of(4.9) == (words, 4.9)
    assert cores_of(5.1) == ("0", 5.0)
