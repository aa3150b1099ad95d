"""Seeds that pass, and mends that it notices when they are taken out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from support.driver.driver_world import plan

from dlrover_nb.client import checkpoint, exchange
from dlrover_nb.core.brain.service import Brain
from dlrover_nb.core.controller.plans.allotted import Allotted
from dlrover_nb.core.master.external.job.shard_account import SILENT_S, ShardAccount
from dlrover_nb.core.master.external.job.state import ExternalState
from dlrover_nb.core.master.own.nodes import fencing
from dlrover_nb.core.master.own.servers import pauses
from dlrover_nb.core.master.shared.restarts import RestartBudget
from dlrover_nb.core.rundir import log_file
from dlrover_nb.core.rundir.log_file import LogContent, read_log
from dlrover_nb.core.runtime.exchange.push_pull import StaleEpoch
from dlrover_nb.core.runtime.ps.serving import Serving
from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.structs.job.spec_choices import Migration, Sync
from dlrover_nb.core.structs.plan.resources import Role
from simulation.events import BusyMachine, End, Event, Scale, Slow
from simulation.exchange.network import Ways
from simulation.exchange.schedule import MODEL, CutExchange, ExchangeScenario
from simulation.own.backends import RuledBackend
from simulation.own.schedule import OwnScenario
from simulation.search import SCENARIOS, failures, run, scenario

KINDS = tuple(SCENARIOS)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulation.promises import Verdict

N_SEED, AT_ONCE = 40, 5
HOUR_PARTS, PART_S = 18, 600.0


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Log nothing, as a full disk would hold the tests' own output."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def told(verdicts: Iterator[tuple[Verdict, str]]) -> list[str]:
    return [f"seed {verdict.seed}: {verdict.words}; {command}" for verdict, command in verdicts if command]


def job(*events: Event, n_train: int = 188, **fields: object) -> OwnScenario:
    given = {"plan": plan(2, 3, worker_cpu=0.25, ps_cpu=0.2), "n_epoch": 2, "shard_batches": 4} | fields
    return OwnScenario(0, events, n_train, given, RuledBackend)


def nodes(ways: Ways, *events: Event, n_train: int = 120, **fields: object) -> ExchangeScenario:
    """Return a job with real nodes."""
    given = {"plan": plan(2, 2, worker_cpu=0.25, ps_cpu=0.2), "model": MODEL, "shard_batches": 2}
    return ExchangeScenario(0, events, n_train, given | fields, ways)


def first_failure(kind: str, first: int) -> str:
    """Return what is wrong with the first of some seeds that fails."""
    verdicts = (run(scenario(seed, kind)) for seed in range(first, first + 30))
    return next((verdict.kind for verdict in verdicts if verdict.kind), "nothing")


@pytest.mark.parametrize("first", range(0, N_SEED, AT_ONCE))
def test_these_seeds_keep_every_promise(first: int) -> None:
    assert not told(failures(range(first, first + AT_ONCE), limit_s=600.0))


@pytest.mark.release
@pytest.mark.parametrize("part", range(HOUR_PARTS))
def test_hours_of_seeds_keep_every_promise(part: int) -> None:
    first = 1_000_000 * (part + 1)
    assert not told(failures(range(first, first + 1_000_000), limit_s=PART_S))


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_is_a_reproduction(kind: str) -> None:
    assert run(scenario(14, kind)) == run(scenario(14, kind))


def test_a_damaged_log_that_is_taken_for_a_torn_tail_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "read_log", lambda data, start: LogContent(read_log(data, start).entries))
    assert first_failure("own", 30) == "rows were trained twice"


def test_a_time_out_that_counts_against_rows_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = job(BusyMachine(2.0, 12.0), BusyMachine(14.1, 12.0), heartbeat_timeout_s=3.0, n_train=300)
    assert not run(busy).kind
    take_back = fencing._open
    monkeypatch.setattr(
        fencing, "_open", lambda state, fences, at_s, **_: take_back(state, fences, at_s, crashed=True)
    )
    assert run(busy).kind == "healthy rows are in quarantine"


def test_rows_for_a_node_that_was_ended_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExternalState, "serves", lambda _self, _node: True)
    assert first_failure("external", 8) == "a dead generation takes part"


def test_rows_of_a_lost_member_that_count_by_its_own_word_alone_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ShardAccount, "reach", lambda self, _reached: self._begun(0))
    assert first_failure("elastic", 3) == "rows were trained twice"


def test_a_checkpoint_of_a_process_that_leaves_others_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_job_stops", lambda: True)
    assert first_failure("elastic", 5217) == "a checkpoint counts other rows than its parameters have"


def test_a_brain_that_acts_without_its_lease_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Brain, "_may_act", lambda _self, _term: True)
    assert first_failure("brain", 0) == "a brain decides without its lease"


def test_a_brain_of_an_earlier_term_that_is_obeyed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = Allotted.changed

    def forgetful(self: Allotted, event: object) -> object:
        self._term = 0
        return changed(self, event)  # type: ignore[arg-type]

    monkeypatch.setattr(Allotted, "changed", forgetful)
    assert first_failure("brain", 6) == "an old brain has effect"


@pytest.mark.more
def test_a_program_that_goes_on_from_an_older_checkpoint_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = checkpoint.Saver._copies
    monkeypatch.setattr(checkpoint.Saver, "_copies", lambda self: sorted(copies(self))[:-1])
    assert first_failure("saving", 0) == "an older checkpoint is loaded"


def test_rows_that_are_taken_back_from_a_program_that_trains_alone_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def take_back(self: ShardAccount, at_s: float, **_: object) -> None:
        for owner in [each for each, heard_s in self.heard_s.items() if at_s > heard_s + SILENT_S]:
            self.release_node(owner.partition("/")[0])

    monkeypatch.setattr(ShardAccount, "note_silent", take_back)
    assert first_failure("saving", 0) == "rows were trained twice"


def test_refusals_that_count_as_failures_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: RestartBudget, at_s: float) -> None:
        self.record(at_s, has_worked=False, n_sample_done=0)

    monkeypatch.setattr(RestartBudget, "refuse", refuse)
    assert first_failure("own", 161) == "the job failed"


@pytest.mark.parametrize("sync", list(Sync))
@pytest.mark.parametrize("ways", [Ways(doubled=1.0), Ways(doubled=1.0, late=0.1, overtake=True)])
def test_messages_that_come_twice_change_nothing_and_are_all_read(sync: Sync, ways: Ways) -> None:
    verdict = run(nodes(ways, sync=sync))
    assert (verdict.end, verdict.words) == ("succeeded", "")


def test_a_push_that_is_applied_each_time_it_comes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Serving.open

    class Forgetful(dict[bytes, int]):
        def get(self, _key: object, default: object = None) -> object:  # type: ignore[override]
            return default

    def forgetful(self: Serving, *args: object) -> None:
        opened(self, *args)  # type: ignore[arg-type]
        self._applied = Forgetful()

    monkeypatch.setattr(Serving, "open", forgetful)
    assert run(nodes(Ways(doubled=0.3))).kind == "an update is applied twice"


@pytest.mark.parametrize("migration", list(Migration))
@pytest.mark.parametrize("every_s", [0.0, 1.0])
def test_gathered_gradients_that_are_not_applied_before_they_are_saved_or_move_are_noticed(
    monkeypatch: pytest.MonkeyPatch, migration: Migration, every_s: float
) -> None:
    grown = Scale(2.3, "ada", 0.0, plan(2, 3, worker_cpu=0.25, ps_cpu=0.2))
    fields = {"sync": Sync.GBA, "global_batch": 45, "checkpoint_every_s": every_s, "migration": migration}
    job = nodes(Ways(doubled=0.3), grown, End(4.0, Role.WORKER, 0, -9), n_train=240, **fields)
    assert run(job).words == ""
    monkeypatch.setattr(Serving, "settle", lambda *_: None)
    assert run(job).kind == "an acknowledged push is neither saved nor moved"


STEPS = {"sync": Sync.BSP, "deterministic": True, "global_batch": 50, "checkpoint_every_s": 0.5}


@pytest.mark.parametrize("what", ["reopen_step", "settle"])
def test_a_step_that_is_saved_in_part_is_noticed(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    grown = Scale(2.3, "ada", 0.0, plan(3, 3, worker_cpu=0.25, ps_cpu=0.2))
    job = nodes(Ways(doubled=0.3), grown, End(4.0, Role.WORKER, 0, -9), n_train=240, **STEPS)
    assert run(job).words == ""
    if what == "settle":
        monkeypatch.setattr(Serving, "settle", lambda *_: None)
    else:
        monkeypatch.setattr(ShardLedger, "reopen_step", lambda _: 0)
    assert run(job).kind == "parameters differ from those of an undisturbed run"


def test_steps_that_take_longer_than_the_time_between_checkpoints_end() -> None:
    job = nodes(Ways(), Slow(1.0, 0, 10.0), Slow(1.0, 1, 10.0), **STEPS)
    assert run(job).words == ""


def test_gathered_gradients_that_are_dropped_with_their_worker_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields = {"sync": Sync.GBA, "global_batch": 85, "checkpoint_every_s": 1.0, "heartbeat_timeout_s": 3.0}
    job = nodes(Ways(), End(2.6, Role.WORKER, 0, -9), n_train=240, **fields)
    assert run(job).words == ""
    forget = Serving.forget

    def dropped(self: Serving, worker: str) -> None:
        forget(self, worker)
        if self.store is not None:
            self.open(self.store, self.epoch)  # it begins anew, with nothing gathered

    monkeypatch.setattr(Serving, "forget", dropped)
    assert run(job).kind == "an acknowledged push is neither saved nor moved"


def test_a_push_of_an_earlier_epoch_that_is_applied_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Serving.open

    def opened_to_all(self: Serving, *args: object) -> None:
        opened(self, *args)  # type: ignore[arg-type]
        self._refusal = lambda *_: StaleEpoch(self.epoch) if self.store is None else None

    faults = CutExchange(2.8, Role.WORKER, 0, 6.0, is_lost=False), End(3.4, Role.PS, 1, -9)
    lost_ps = nodes(Ways(), *faults, checkpoint_every_s=1.0, shard_batches=4)
    assert not run(lost_ps).kind
    monkeypatch.setattr(Serving, "open", opened_to_all)
    assert run(lost_ps).kind == "an update of another epoch is applied"


def test_a_worker_cut_off_from_its_servers_in_a_pause_trains_no_batch_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begins_s = (2.0, 3.2)  # while a push is on its way, and while the last one before the pause is
    cuts = [CutExchange(at_s, Role.WORKER, 0, 55.0, is_lost=True) for at_s in begins_s]
    jobs = [nodes(Ways(), cut, checkpoint_every_s=0.5, n_train=240) for cut in cuts]
    assert [run(each).words for each in jobs] == ["", ""]
    monkeypatch.setattr(pauses, "MOST_GIVEN_UP", 0)
    assert run(jobs[0]).kind == "rows were trained twice"
