"""Laws of the account of rows: the real client and the real master, over an unreliable line, deaths and restarts."""

import contextlib
import json
import logging
import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlrover_nb.client import checkpoint
from dlrover_nb.client.link import ServiceError, UnreachableError
from dlrover_nb.client.session import Session
from dlrover_nb.core.codec import Tagged
from dlrover_nb.core.driver.external.external_actions import StatePersistence
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.master.external.master import QUIET_S, ExternalMaster
from dlrover_nb.core.master.external.orders import SendEnvironment
from dlrover_nb.core.master.shared.orders import StartNode, StopNode
from dlrover_nb.core.rundir.external_state import StateFile
from dlrover_nb.core.rundir.shard_log import read_shard_log
from dlrover_nb.core.runtime.checkpoints.memory_names import free_run, run_name
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.shards import BatchChoice, ShardAction, ShardChoice
from dlrover_nb.core.structs.wire.services import ANSWER_NAMES, CALL_NAMES, ServiceAnswer, ServiceCall

CALLS = Tagged(ServiceCall, written=CALL_NAMES)
ANSWERS = Tagged(ServiceAnswer, written=ANSWER_NAMES)
CAPACITY = Capacity((NodeShape(64.0, 65536),))
LAWS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class NoLogs:
    def __init__(self):
        self.read_ns = {}


class World:
    """A master with its files, and pods of which each runs one program; facts come at whole seconds."""

    def __init__(self, folder, chance, *, n_row=37, n_epoch=2, n_worker=2, faults=0.3):
        role = ExternalRole(("x",))
        foreign = ExternalSpec(role, n_row * n_epoch, ps=role, framework=Framework.TORCH)
        plan = ResourcePlan(RolePlan(n_worker, 1.0, 512), RolePlan(1, 1.0, 512))
        self.spec = JobSpec(
            "laws", plan=plan, foreign=foreign, batch_size=3, shard_batches=2, n_epoch=n_epoch
        )
        self.folder, self.chance, self.faults, self.at_s = folder, chance, faults, 100.0
        for file in folder.iterdir():
            file.unlink()
        self.pods, self.late = {}, []
        self.master = ExternalMaster(self.spec, CAPACITY)
        self.log = StatePersistence(self.master, NoLogs(), folder)
        self.do(self.master.start(self.at_s))
        self.log.begin()
        self.come_up()

    def do(self, orders):
        self.log.write_ahead(orders)
        for order in orders:
            match order:
                case StartNode(node):
                    self.pods[node] = None
                case StopNode(node):
                    self.pods.pop(node, None)
                case SendEnvironment(node, text):
                    self.pods[node] = Program(self, node) if text and node.startswith("worker") else None

    def come_up(self):
        self.at_s += 30.0
        self.do(self.master.tick(self.at_s))
        self.do(self.master.update_addresses({node: node for node in self.pods}, self.at_s))

    @property
    def programs(self):
        return [program for program in self.pods.values() if program is not None]

    def deliver(self, body):
        """Let the master answer; its state is lasting before the answer is known."""
        answer, orders = self.master.on_call(CALLS.from_line(body), self.at_s)
        self.do(orders)
        return ANSWERS.to_line(answer)

    def restart_master(self):
        """Replace the master by one that knows its files alone."""
        self.log._shards.close()
        saved = StateFile(self.folder).read()
        self.master = ExternalMaster(self.spec, CAPACITY)
        if saved.record.services.has_ledger:
            self.master.account.adopt(*read_shard_log(self.folder))
        self.log = StatePersistence(self.master, NoLogs(), self.folder)
        self.do(
            [o for o in self.master.resume(saved.record, self.at_s) if not isinstance(o, SendEnvironment)]
        )
        self.log.begin()

    def lose(self, node, *, by_its_work=True):
        """Kill a pod: all programs begin anew with its replacement."""
        self.pods.pop(node)
        self.do(self.master.on_exit(node, "killed", self.at_s, by_its_work=by_its_work))
        self.come_up()

    def close(self):
        self.log.close()

    @property
    def counts(self):
        return self.master.train_counts


class Line:
    """In the place of `Link`: requests and answers are lost, repeated, and late."""

    def __init__(self, world, node):
        self.world, self.node = world, node

    def call(self, kind, fields, *, tries=0):
        world, n_try = self.world, 0
        body = json.dumps([kind, fields]).encode()
        while True:
            n_try += 1
            fate = world.chance.random()
            if fate > world.faults:
                name, answer = json.loads(world.deliver(body))
                if name == "refused":
                    raise ServiceError(answer["why"])
                return name, answer
            if fate > world.faults / 2:
                world.deliver(body)  # the answer is lost
            elif fate > world.faults / 4:
                world.late.append(body)  # it arrives after others
            if world.late and world.chance.random() < 0.5:
                world.deliver(world.late.pop(world.chance.randrange(len(world.late))))
            if n_try == tries:
                raise UnreachableError("no answer")


class Program(Session):
    """A program that trains batches of its shards, and remembers which rows its parameters have seen."""

    def __init__(self, world, node):
        super().__init__(Line(world, node), "0")
        self.shard, self.is_over = None, False

    def _begin(self):
        """Report by the law's own steps instead of a thread."""

    def step(self, trained):
        """Train a batch, or ask for a shard."""
        if self.shard is None or self.shard[0].is_stale or self.shard[0].n_done >= self.shard[0].end:
            name, answer, held = self.ask()
            self.is_over = name == "over"
            self.shard = None if held is None else (held, answer["epoch"], answer["start"])
            return
        held, epoch, start = self.shard
        n_row = min(3, held.end - held.n_done)
        trained.update((epoch, start + held.n_done + i) for i in range(n_row))
        held.n_done += n_row

    @property
    def n_unreported(self):
        return sum(lease.n_done - lease.n_told for lease in self._leases.values())


_made = contextlib.ExitStack()


def made(*args, **settings):
    """Return a world in the place of the one before."""
    _made.close()
    return _made.enter_context(contextlib.closing(World(*args, **settings)))


@pytest.fixture(autouse=True)
def _closed():
    yield
    _made.close()


def run(world, trained, chance, act):
    """Let programs train in any order until all is done; `act` may do something else first."""
    for _ in range(20_000):
        if world.master.account.is_over:
            return
        act()
        program = chance.choice(world.programs)
        if chance.random() < 0.1:
            program.report()
        program.step(trained)
        world.at_s += 0.01
    raise AssertionError(f"it does not end: {world.counts} {world.master.message}")


def everything(world):
    split = world.master.account.ledger.split
    return Counter((epoch, row) for epoch in range(split.n_epoch) for row in range(split.n_sample))


@LAWS
@given(chance=st.builds(random.Random, st.integers(0, 2**32)), n_worker=st.integers(1, 4))
def test_without_deaths_each_row_is_trained_once_whatever_the_line_and_the_master_do(
    tmp_path, chance, n_worker
):
    world, trained = made(tmp_path, chance, n_worker=n_worker), Counter()

    def act():
        if chance.random() < 0.03:
            world.restart_master()

    run(world, trained, chance, act)
    assert trained == everything(world)
    assert world.counts.n_sample_done == world.spec.foreign.n_sample
    assert world.counts.returned == 0


@pytest.mark.more
@LAWS
@given(chance=st.builds(random.Random, st.integers(0, 2**32)), n_worker=st.integers(1, 4))
def test_each_row_is_trained_and_twice_only_where_its_program_died_before_it_was_reported(
    tmp_path, chance, n_worker
):
    world, trained = made(tmp_path, chance, n_worker=n_worker), Counter()
    n_lost = 0

    def act():
        nonlocal n_lost
        if chance.random() < 0.01:
            n_lost += sum(program.n_unreported for program in world.programs)
            world.lose(chance.choice([node for node in world.pods if node.startswith("worker")]))
        if chance.random() < 0.02:
            world.restart_master()

    run(world, trained, chance, act)
    assert not everything(world) - trained, "a finished job has trained all rows"
    assert trained.total() <= world.spec.foreign.n_sample + n_lost
    assert world.counts.n_sample_done == world.spec.foreign.n_sample


@pytest.mark.more
@LAWS
@given(chance=st.builds(random.Random, st.integers(0, 2**32)), n_worker=st.integers(1, 3))
def test_parameters_with_their_account_of_rows_have_seen_each_row_once(tmp_path, chance, n_worker):
    """Programs in step: all restart together, load the last checkpoint, and save when all have acknowledged."""
    world, trained = made(tmp_path, chance, n_worker=n_worker), Counter()
    saved = Counter(), ""

    def act():
        nonlocal saved
        if chance.random() < 0.05:
            for program in world.programs:
                program.report()
            saved = Counter(trained), chance.choice(world.programs).rows()
        if chance.random() < 0.02:
            world.restart_master()
        if chance.random() < 0.01:
            world.lose(chance.choice([node for node in world.pods if node.startswith("worker")]))
            trained.clear()
            trained.update(saved[0])
            for program in world.programs:
                program.restore(saved[1])

    run(world, trained, chance, act)
    assert trained == everything(world)


def world_of(tmp_path, **changes):
    return made(tmp_path, random.Random(0), faults=0.0, **changes)


def test_a_process_that_begins_in_the_place_of_another_gets_what_that_one_held(tmp_path, error_words):
    world = world_of(tmp_path)
    old = world.pods["worker-0"]
    _, first, held = old.ask()
    held.n_done += 2
    old.report()
    new = Program(world, "worker-0")
    _, again, _ = new.ask()
    assert (again["shard"], again["offset"]) == (first["shard"], 2)
    with error_words(ServiceError):
        old.report()


def test_a_silent_process_loses_its_shards_and_what_it_says_later_is_refused(tmp_path, caplog):
    world = world_of(tmp_path)
    one, other = world.programs
    _, first, held = one.ask()
    for _ in range(70):
        world.at_s += 1.0
        world.do(world.master.tick(world.at_s))
        other.report()
    assert other.ask()[1]["shard"] == first["shard"]
    held.n_done += 1
    with caplog.at_level(logging.WARNING):
        one.report()
    assert held.is_stale
    assert "was taken back" in caplog.text
    assert world.counts.refused == 1


def test_the_rows_of_a_program_are_those_of_the_job(tmp_path, error_words):
    world = world_of(tmp_path)
    with error_words(ServiceError):
        world.programs[0].ask(40)


def test_passes_are_whole(tmp_path, error_words):
    world = world_of(tmp_path)
    world.spec = JobSpec("laws", plan=world.spec.plan, foreign=world.spec.foreign, n_epoch=3)
    world.master = ExternalMaster(world.spec, CAPACITY)
    with error_words(ServiceError):
        Program(world, "worker-0").rows()


def test_a_process_that_trains_alone_may_be_stopped_for_long_and_repeats_nothing(tmp_path):
    world = world_of(tmp_path, n_worker=1)
    (one,) = world.programs
    _, _, held = one.ask()
    held.n_done += 2  # and it is stopped before it reports that
    for _ in range(200):
        world.at_s += 1.0
        world.do(world.master.tick(world.at_s))
    assert world.master.account.has_rows
    held.n_done += 1
    one.report()
    assert not held.is_stale
    assert world.counts.n_sample_done == 3
    assert world.counts.returned == 0


def test_processes_of_one_start_load_the_same_checkpoint(tmp_path, error_words):
    world = world_of(tmp_path)
    one, other = world.programs
    one.restore("")
    _, _, held = one.ask()
    held.n_done += 3
    rows = one.rows()
    with error_words(ServiceError):
        other.restore(rows)
    other.restore("")
    assert world.counts.n_sample_done == 3, "the second one does not take back what the first one trained"


def test_a_program_may_go_back_by_itself(tmp_path):
    world = world_of(tmp_path, n_worker=1)
    (one,) = world.programs
    rows = one.rows()
    for _ in range(2):
        _, _, held = one.ask()
        held.n_done += 3
        one.report()
        assert world.counts.n_sample_done == 3
        one.restore(rows)
        assert world.counts.n_sample_done == 0
        assert held.is_stale


@pytest.mark.parametrize("rows", ["no json", '{"split": 1}'])
def test_what_is_no_account_of_rows_is_refused(tmp_path, rows):
    with pytest.raises(ServiceError, match="expected a LedgerCheckpoint"):
        world_of(tmp_path).programs[0].restore(rows)


def test_an_account_of_other_rows_is_refused(tmp_path, error_words):
    rows = world_of(tmp_path, n_row=38).programs[0].rows()
    with error_words(ServiceError):
        world_of(tmp_path).programs[0].restore(rows)


def test_another_run_in_the_same_working_folder_begins_anew(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(checkpoint.FOLDER_VAR, raising=False)
    for run in ("first", "second"):
        folder = tmp_path / run
        folder.mkdir()
        world = world_of(folder, n_worker=1)
        world.master.memory = run_name("laws", folder)
        (program,) = world.programs
        monkeypatch.setattr(checkpoint, "session", lambda program=program: program)
        try:
            assert checkpoint.load() is None
            checkpoint.save(run.encode(), 1)
            checkpoint.wait()
            assert checkpoint.load().state == run.encode()
        finally:
            free_run(world.master.memory)
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


def test_a_stop_is_told_and_waits_for_the_programs(tmp_path):
    world = world_of(tmp_path)
    for program in world.programs:
        program.ask()
    world.do(world.master.stop("ada", "enough", world.at_s))
    assert world.master.phase is not JobPhase.STOPPED
    assert world.programs[0].state(fresh=True)["should_stop"]
    assert world.programs[0].ask()[0] == "over"
    world.restart_master()
    world.do(world.master.on_exit("worker-0", "", world.at_s, succeeded=True))
    assert world.master.phase is not JobPhase.STOPPED
    world.do(world.master.on_exit("worker-1", "exit code 1", world.at_s))
    assert (world.master.phase, world.master.message) == (JobPhase.STOPPED, "stopped by ada: enough")
    assert not world.pods


def test_a_stop_does_not_wait_for_ever(tmp_path):
    world = world_of(tmp_path)
    world.programs[0].ask()
    world.do(world.master.stop("ada", "", world.at_s))
    world.do(world.master.tick(world.at_s + 61.0))
    assert world.master.phase is JobPhase.STOPPED


def test_rows_whose_programs_are_evicted_again_and_again_are_trained(tmp_path):
    world = world_of(tmp_path, n_worker=1, n_epoch=1)
    bad = world.programs[0].ask()[1]["shard"]
    for _ in range(4):
        world.lose(next(node for node in world.pods if node.startswith("worker")), by_its_work=False)
        assert world.programs[0].ask()[1]["shard"] == bad
    assert not world.master.quarantined


def test_rows_that_kill_their_programs_are_put_aside_until_somebody_decides(tmp_path):
    world = world_of(tmp_path, n_worker=1, n_epoch=1)
    trained = Counter()
    (program,) = world.programs
    bad = program.ask()[1]["shard"]
    for _ in range(3):
        world.lose(next(node for node in world.pods if node.startswith("worker")))
        (program,) = world.programs
        if not world.master.quarantined:
            assert program.ask()[1]["shard"] == bad
    (aside,) = world.master.quarantined
    assert aside.shard == bad
    assert "is in quarantine" in world.master.message
    assert world.master.phase is not JobPhase.BLOCKED, "other rows are left"
    for _ in range(100):
        world.programs[0].step(trained)
    assert not world.counts.finished
    world.do(world.master.tick(world.at_s + 2 * QUIET_S))
    assert world.master.phase is JobPhase.BLOCKED
    assert "wait for a decision" in world.master.message
    world.do(world.master.choose(ShardChoice(bad, ShardAction.SKIP, "ada"), world.at_s))
    assert world.counts.finished
    assert world.programs[0].ask()[0] == "over"


def test_batch_sizes_reach_the_programs(tmp_path, error_words):
    world = world_of(tmp_path)
    choice = BatchChoice((("worker-1", 96),), "ada")
    with pytest.raises(InvalidValueError, match=r"unless they use dlrover_nb\.client"):
        world.master.choose(choice, world.at_s)
    for program in world.programs:
        program.report()
    with error_words(InvalidValueError):
        world.master.choose(BatchChoice((("ps-0", 96),), "ada"), world.at_s)
    world.do(world.master.choose(choice, world.at_s))
    world.restart_master()
    assert [program.state(fresh=True)["batch_size"] for program in world.programs] == [0, 96]
