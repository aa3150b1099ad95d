"""A job that begins from the checkpoint of another run, message by message."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from support.master.master_world import World, features, in_place, plan, spec

from dlrover_nb.core.master.own.master import JobMaster
from dlrover_nb.core.master.own.state.state import ORIGIN, RestorableCheckpoint, train_split
from dlrover_nb.core.sharding.continued import continued, untouched
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.start_from import StartFrom
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import PhaseChanged

if TYPE_CHECKING:
    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import JobSpec

THERE = 77  # the number under which the files of the other run are known here


def stopped(n_ps: int = 2) -> World:
    """Return a job that was stopped within its pass and left a checkpoint."""
    world = World(spec(plan(1, n_ps)), features(4000))
    world.run_until(lambda: world.master.train_counts.n_sample_done > 500)
    world.do(world.master.stop("ada", "enough", world.at_s))
    world.run_until(lambda: world.master.phase.is_final)
    return world


class Begun(World):
    """A job that begins from another's checkpoint."""

    def __init__(self, other: World, job: JobSpec, rows: FeatureSpec) -> None:
        manifest, learnt = other.disk[max(other.disk)]
        split = train_split(job, rows)
        assert job.start_from is not None
        account = continued(manifest.ledger, split) if job.start_from.rows else untouched(split)
        files = tuple((f"/old/{THERE}/ps-{i}.part", "") for i in range(len(manifest.files)))
        manifest_here = replace(manifest, number=ORIGIN, ledger=account, files=files)
        self.origin = RestorableCheckpoint(manifest_here, (None,) * len(files), is_on_disk=True)
        self.is_first = True
        super().__init__(job, rows)
        for (url, _), (old, _) in zip(files, manifest.files, strict=True):
            self.files[url] = other.files[old]
        self.copies[THERE] = dict(learnt)

    def _new_master(self) -> JobMaster:
        """Return the first master with the origin, and those that resume without: it is in their log."""
        origin, self.is_first = (self.origin if self.is_first else None), False
        return JobMaster(
            self.job, self.rows, self.capacity, folder=self.folder, evaluate=self._evaluate, origin=origin
        )


def begun(other: World, *, rows: bool = False, ps: int = 3, **changes: Any) -> Begun:
    job = spec(plan(1, ps), start_from=StartFrom("other", rows), **changes)
    return Begun(other, job, other.rows)


@pytest.mark.more
@pytest.mark.parametrize("ps", [1, 2, 3])
def test_any_number_of_ps_loads_it_and_goes_on_in_the_rows(ps: int, words) -> None:
    other = stopped()
    n_before = other.master.train_counts.n_sample_done
    world = begun(other, rows=True, ps=ps)
    assert world.master.train_counts.n_sample_done == n_before
    world.run_until(lambda: in_place(world, plan(1, ps)))
    world.check_parameters()
    assert world.said("was loaded") == words
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    assert world.master.train_counts.n_sample_done == 4000
    assert set(world.learnt.values()) == {1}
    assert len(world.learnt) == 4000
    world.check_parameters()


@pytest.mark.more
@pytest.mark.parametrize("crashes", [False, True])
def test_ps_that_are_lost_before_its_first_checkpoint_load_it_again(words, *, crashes: bool) -> None:
    other = stopped()
    n_before = other.master.train_counts.n_sample_done
    world = begun(other, rows=True)
    world.run_until(lambda: world.master.train_counts.n_sample_done > n_before + 200)
    if crashes:
        world.crash()
    world.kill(world.living(Role.PS)[0])
    assert world.master.train_counts.n_sample_done == n_before
    assert world.said("continuing from") == words
    world.run_until(lambda: in_place(world, plan(1, 3)))
    world.check_parameters()
    world.run_to_end()
    assert world.master.train_counts.n_sample_done == 4000


def test_parameters_alone_train_all_rows_again() -> None:
    world = begun(stopped())
    assert world.master.train_counts.n_sample_done == 0
    world.run_to_end()
    assert world.master.train_counts.n_sample_done == 4000
    assert set(world.learnt.values()) == {1, 2}


def test_its_own_checkpoints_come_first_and_it_stays_behind_them() -> None:
    world = begun(stopped(), checkpoint_every_s=1.0)
    world.run_until(lambda: len(world.disk) == 2 and max(world.disk) > 3)
    assert ORIGIN not in world.dropped
    assert world.master.checkpoints[0] == world.origin
    world.damaged |= set(world.disk)
    world.memory.clear()
    world.has_memory = False
    world.kill(world.living(Role.PS)[0])
    loads_origin = "continuing from the checkpoint that the job began from"
    world.run_until(lambda: loads_origin in str(world.told(PhaseChanged)))


def test_one_that_cannot_be_read_fails_the_job_and_nothing_begins_untrained(words) -> None:
    world = begun(stopped())
    world.damaged.add(THERE)
    world.run_until(lambda: world.master.phase.is_final)
    assert world.master.phase is JobPhase.FAILED
    assert world.master.message == words
