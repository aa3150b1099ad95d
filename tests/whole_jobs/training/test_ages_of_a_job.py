"""How old the gradients of a real job are, as its first PS counts them and its telemetry has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.driver.real_job import Job, TcpBackend, plan, succeeded

from dlrover_nb.api.views.staleness_view import StalenessView
from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.structs.job.spec_choices import Sync

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot


@pytest.mark.release
@pytest.mark.parametrize(
    ("sync", "backend"),
    [(Sync.ASP, LocalBackend), (Sync.ASP, TcpBackend), (Sync.SSP, LocalBackend), (Sync.BSP, LocalBackend)],
)
def test_gradients_miss_the_updates_of_the_other_worker_unless_they_train_in_rounds(
    start: Callable[..., Job], sync: Sync, backend: type[LocalBackend]
) -> None:
    job = start(plan=plan(2, 2), sync=sync, backend=backend, n_epoch=6)

    def both_are_counted(_: JobSnapshot) -> bool:
        return len(set(job.driver.series().ages["node"])) == 2

    job.until(both_are_counted)
    end = succeeded(job)
    series = job.driver.series()
    shown = StalenessView(end, series)
    first, second = shown.workers
    assert min(first.ages.n, second.ages.n) > 10
    assert [each.name for each in shown.servers] == ["ps-0", "ps-1"]
    assert all(each.ages.n and each.times.n == each.ages.n for each in shown.servers)
    assert end.ages.n_gradient == shown.ages.n == shown.times.n
    assert end.ages.seconds > 0
    is_bsp = sync is Sync.BSP  # whose rounds have no gradients of single rows
    assert (shown.row_ages.n == 0) == (end.ages.row_updates is None) == is_bsp
    assert is_bsp or end.ages.row_updates <= end.ages.updates + 1
    assert (shown.ages.quantile(1.0) == 0) == (sync is Sync.BSP)
    assert first.n_row + second.n_row <= end.train.n_sample_done  # reports of the last second are not heard
    assert first.n_row + second.n_row > 0.5 * end.train.n_sample_done
    assert all(0 < each.batch_size <= job.spec.batch_size for each in (first, second))
    assert min(first.ahead, second.ahead) == 0
