"""A second job of one program starts with the costs of mini-batches that a first one measured, if they hold."""

from __future__ import annotations

from collections import Counter
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from support.driver.real_job import Job, plan

from dlrover_nb.core.driver.job_start import traits_of
from dlrover_nb.core.history.database import Database
from dlrover_nb.core.history.stores.batch_costs import BatchCostStore, add
from dlrover_nb.core.runtime.worker.batch_costs import N_CHECKED
from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.training.batch_cost import ProgramCost

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.training.batch_cost import BatchCost
    from dlrover_nb.core.structs.training.shards import Shard

NAME = "real"  # of all these jobs


def job_in(folder: Path, features: FeatureSpec) -> Job:
    folder.mkdir()
    return Job(
        folder,
        features,
        history=f"sqlite:///{folder.parent / 'history.db'}",
        plan=plan(2),
        sync=Sync.BSP,
        stragglers="antdt-dd",
        n_epoch=1000,
        shard_batches=1,
    )


@contextmanager
def too_few_to_check() -> Iterator[None]:
    """Grant each worker fewer batches than it needs to see whether the cost of an earlier job holds.

    A machine that is busy in one job and not in the next takes another time for a batch, so that it may not.
    """
    grant, granted = ShardLedger.grant, Counter[str]()

    def few(ledger: ShardLedger, owner: str, **most: int | None) -> Shard | None:
        if granted[owner] == N_CHECKED // 2:
            return None
        shard = grant(ledger, owner, **most)
        granted[owner] += shard is not None
        return shard

    with mock.patch.object(ShardLedger, "grant", few):
        yield


def costs_by(job: Job, by: str) -> set[BatchCost]:
    """Train until both workers know what a mini-batch costs, as a job measured it; empty: they themselves."""
    with closing(job), too_few_to_check() if by else nullcontext():
        job.driver.start()
        now = job.until(lambda now: [cost.job for cost in now.batch_costs.values()] == [by] * 2)
        return set(now.batch_costs.values())


@pytest.mark.more
def test_they_are_taken_over_and_measured_again_where_they_are_wrong(
    tmp_path: Path, features: FeatureSpec
) -> None:
    first = job_in(tmp_path / "first", features)
    program = traits_of(first.spec, features, first.folder).program
    measured = costs_by(first, by="")
    with closing(BatchCostStore(first.history)) as store:
        (kept,) = store.costs(program)
    assert kept.job == NAME
    assert replace(kept, job="", at_s=0.0) in measured

    later = costs_by(job_in(tmp_path / "second", features), by=NAME)
    assert {(each.fixed_s, each.row_s, each.at_s) for each in later} == {
        (kept.fixed_s, kept.row_s, kept.at_s)
    }

    wrong = replace(kept, fixed_s=100 * kept.fixed_s, row_s=100 * kept.row_s, at_s=kept.at_s + 1)
    with closing(Database(first.history)) as database:
        add(database, ProgramCost(program, wrong))
    again = costs_by(job_in(tmp_path / "third", features), by="")
    assert not {(each.fixed_s, each.row_s) for each in again} & {(wrong.fixed_s, wrong.row_s)}
    with closing(BatchCostStore(first.history)) as store:
        (kept,) = store.costs(program)
    assert replace(kept, job="", at_s=0.0) in again
