"""Actions against stragglers in a job's records: what a restart knows of them, and a reader of its past."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest
from support.driver.driver_world import succeeded
from support.jobs.builders import snapshot
from support.plans.slow_world import SlowJob

from dlrover_nb.core.client.past.history_queries import run_history
from dlrover_nb.core.controller.plans.proposal_states import is_closed
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.driver.loop.recorded_controller import RecordedController
from dlrover_nb.core.driver.past.finished_job import FinishedJob, pack_snapshot, unpack_snapshot
from dlrover_nb.core.driver.past.time_travel import Replay
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.master.own.master import JobMaster
from dlrover_nb.core.rundir import journal
from dlrover_nb.core.rundir.journal import segments
from dlrover_nb.core.structs.decisions.actions import ActionChoice, KillRestart
from dlrover_nb.core.structs.decisions.decisions import Decision, ProposalStatus, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode, Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.stragglers import NodeErrors
from dlrover_nb.core.structs.views.events import MitigationEnded, PhaseChanged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.driver.driver_world import DriverWorld


def lived() -> SlowJob:
    """Return a job in which one action was done and another one is under way."""
    job = SlowJob(sync=Sync.ASP, settings=ControllerSettings())
    job.run(40)
    job.slow["worker-2"] = 3.0
    job.run(60)
    job.decide(Verdict.ACCEPT, proposal="m1")
    job.replace_node("worker-2", "worker-4")
    job.end()
    job.slow["worker-1"] = 4.0
    job.run(60)
    job.decide(Verdict.ACCEPT, proposal="m2")
    job.run(5)
    return job


def recorded(folder: Path, events) -> RecordedController:
    made = RecordedController("clicks", folder, f"sqlite:///{folder / 'history.db'}")
    for event in events:
        made.emit(event)
    return made


@pytest.mark.release
@pytest.mark.parametrize("segment_bytes", [1 << 30, 20_000])
def test_a_master_that_continues_a_job_knows_the_action_under_way(tmp_path, monkeypatch, segment_bytes):
    monkeypatch.setattr(journal, "SEGMENT_BYTES", segment_bytes)
    monkeypatch.setattr(journal, "EVENT_SHARE", 0)
    job = lived()
    first = recorded(tmp_path, job.journal)
    history = HistoryStore(f"sqlite:///{tmp_path / 'history.db'}")
    assert history.mitigations("clicks") == job.view.mitigations
    assert first.controller.acting == job.controller.acting is not None
    first.close()
    assert (len(segments(tmp_path)) > 1) == (segment_bytes < 1 << 30)
    second = RecordedController("clicks", tmp_path, f"sqlite:///{tmp_path / 'history.db'}")
    second.replay()
    assert second.controller.acting == job.controller.acting
    assert second.controller.view() == job.view
    assert history.mitigations("clicks") == job.view.mitigations
    second.emit(MitigationEnded(job.at_s + 1.0, job.controller.acting.decision, "no room"))
    second.emit(PhaseChanged(job.at_s + 2.0, JobPhase.STOPPED, "stopped by ada"))
    second.close()
    kept = run_history("clicks", url=f"sqlite:///{tmp_path / 'history.db'}")
    assert kept.mitigations == second.controller.view().mitigations
    assert [each.status for each in kept.mitigations] == [ProposalStatus.APPLIED, ProposalStatus.FAILED]
    history.close()


@pytest.mark.more
def test_a_moment_of_the_past_has_who_was_slow_and_what_was_done(tmp_path):
    job = lived()
    recorded(tmp_path, job.journal).close()
    replay = Replay(tmp_path)
    replay.read_on()
    now = replay.at(job.at_s)
    assert (now.mitigations, now.stragglers) == (job.view.mitigations, job.view.stragglers)
    told = [each.words for each in replay.happenings if "proposed" in each.words]
    assert told == ["m1 proposed: restart worker-2", "m2 proposed: restart worker-1"]
    then = replay.at(60.0)
    assert [each.node for each in then.stragglers] == ["worker-2"]
    assert then.mitigations == ()
    assert [each.status for each in replay.at(95.0).mitigations] == [ProposalStatus.PENDING]


@pytest.mark.more
def test_a_finished_job_keeps_its_actions():
    job = lived()
    errors = (NodeErrors("worker-2", Role.WORKER, 1, 0, 600.0),)
    last = replace(
        snapshot(), stragglers=job.view.stragglers, mitigations=job.view.mitigations, node_errors=errors
    )
    kept = unpack_snapshot(pack_snapshot(last, most_bytes=1 << 20))
    assert kept == last
    assert FinishedJob(kept).snapshot().mitigations == job.view.mitigations


def test_a_snapshot_of_a_master_that_tells_no_errors_and_no_stragglers_is_read():
    name, fields = msgspec.msgpack.decode(zlib.decompress(pack_snapshot(snapshot(), most_bytes=1 << 20)))
    for unknown in ("node_errors", "stragglers", "mitigations"):
        del fields[unknown]
    assert unpack_snapshot(zlib.compress(msgspec.msgpack.encode((name, fields)))) == snapshot()


@pytest.mark.parametrize("has_begun", [True, False])
def test_an_action_under_way_is_handed_to_the_next_master_and_ends(
    play: Callable[..., DriverWorld], monkeypatch: pytest.MonkeyPatch, *, has_begun: bool
) -> None:
    restart = ActionChoice.of(KillRestart("worker-0", Role.WORKER))
    with monkeypatch.context() as patch:
        if not has_begun:  # it is killed before it does anything
            patch.setattr(JobMaster, "mitigate", lambda *_: ())
        job = play(mode=Mode.SUGGEST, n_epoch=10)
        job.until(lambda now: now.running and now.train.n_sample_done)
        taken = job.driver.decide(Decision(Verdict.MITIGATE, "ada", job.at_s, action=restart))
        assert [each.status for each in job.now.mitigations] == [ProposalStatus.APPLYING]
        job.crash()
    job.come_back()
    after = job.until(lambda now: is_closed(now.mitigations[-1].status))
    (action,) = after.mitigations
    assert action.decision == taken.id
    assert action.status is (ProposalStatus.APPLIED if has_begun else ProposalStatus.FAILED)
    assert job.nodes["worker-0"].is_alive is not has_begun
    succeeded(job, exactly_once=not has_begun)
