"""A slow node lives, a hung or stopped one is replaced: as the master decides, as a node says, with processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import zmq
from support.master.master_world import World, features, in_place, plan, spec
from support.runtime.node_world import FEATURES, MODEL, SPEC
from support.runtime.node_world import World as Nodes
from support.waiting import LIMIT_S, until

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.master.own.master import JobMaster
from dlrover_nb.core.master.own.nodes.liveness import DISK_LIMIT_S, PLAN_LIMIT_S, STARVED_LIMIT_S
from dlrover_nb.core.master.own.state.state import RestorableCheckpoint, Stage
from dlrover_nb.core.master.shared.orders import Emit, Send, StartNode, StopNode
from dlrover_nb.core.models.score_sums import ScoreSums
from dlrover_nb.core.runtime.checkpoints import ps_checkpoint
from dlrover_nb.core.runtime.exchange.wire import decode
from dlrover_nb.core.runtime.store import ParameterStore, StorePart, even_bucket_owner
from dlrover_nb.core.sharding.manifest import Manifest
from dlrover_nb.core.structs.job.spec_choices import Embedding
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.checkpoints import PartSource
from dlrover_nb.core.structs.views.events import PhaseChanged
from dlrover_nb.core.structs.wire import messages as m

LOADS = "loads its part of a checkpoint"
HEARTBEAT_S = spec().heartbeat_timeout_s


# what the master decides


def running() -> World:
    world = World(spec(plan(1, 1)), features(50_000))
    world.run_until(lambda: in_place(world, plan(1, 1)))
    return world


def loading() -> World:
    """Return a job whose second PS was told to load, and has not answered."""
    world = running()
    world.kill("ps-0")
    world.hello("ps-1")
    world.hear("ps-1")
    assert world.master.stage is Stage.LOADING
    world.nodes["ps-1"].inbox.clear()
    return world


def beats(
    world: World,
    seconds: float,
    *,
    every_s: float = 5.0,
    moves: bool,
    doing: str = "",
    silent: bool = False,
    starved: float = 0.0,
) -> None:
    """Let a PS send heartbeats while others report; stop when it is given up.

    It gets no processor for a `starved` part of the time.
    """
    (name,), begun_s, end_s = world.living(Role.PS), world.at_s, world.at_s + seconds
    while world.at_s < end_s and world.nodes[name].is_alive:
        n_step = round(world.at_s * 10) if moves else 7
        if not silent:
            starved_s = starved * (world.at_s - begun_s)
            world.do(world.master.on_message(name, m.Alive(name, n_step, doing, starved_s), world.at_s))
        for worker in world.living(Role.WORKER):
            world.report(worker)
            while world.hear(worker):
                pass
        world.tick(min(every_s, end_s - world.at_s))


def test_a_ps_that_loads_for_long_and_progresses_is_kept() -> None:
    world = loading()
    beats(world, 4 * DISK_LIMIT_S, every_s=HEARTBEAT_S - 1, moves=True, doing=LOADS)
    assert world.living(Role.PS) == ["ps-1"]
    assert world.master.stage is Stage.LOADING
    assert 4 * DISK_LIMIT_S > PLAN_LIMIT_S


def test_a_ps_that_says_it_loads_and_stands_still_is_replaced_after_the_longer_limit() -> None:
    world = loading()
    beats(world, DISK_LIMIT_S - 5, moves=False, doing=LOADS)
    assert world.living(Role.PS) == ["ps-1"]
    beats(world, 30, moves=False, doing=LOADS)
    assert world.living(Role.PS) == ["ps-2"]
    assert f"s while it {LOADS}" in str(world.told(PhaseChanged))


def test_a_ps_that_progresses_but_does_not_load_is_replaced(words) -> None:
    world = loading()
    beats(world, DISK_LIMIT_S + 10, moves=True)
    assert world.living(Role.PS) == ["ps-2"]
    assert world.said("did not load") == words


def test_a_node_whose_main_thread_hangs_is_replaced_although_it_lives(words) -> None:
    world = running()
    beats(world, HEARTBEAT_S - 5, moves=False)
    assert world.living(Role.PS) == ["ps-0"]
    beats(world, 15, moves=False)
    assert world.living(Role.PS) == ["ps-1"]
    assert world.said("ps-0") == words


def test_a_node_that_gets_no_processor_has_more_time_and_the_job_says_so(words) -> None:
    world = running()
    beats(world, 4 * HEARTBEAT_S, moves=False, starved=0.9)
    assert world.living(Role.PS) == ["ps-0"]
    (text,) = [told.message for told in world.told(PhaseChanged) if "got no processor" in told.message]
    assert text == words


def test_a_node_that_never_gets_a_processor_is_replaced_in_the_end(words) -> None:
    world = running()
    beats(world, STARVED_LIMIT_S, moves=False, starved=1.0)
    assert world.living(Role.PS) == ["ps-0"]
    world = running()
    beats(world, STARVED_LIMIT_S + HEARTBEAT_S + 10, moves=False, starved=1.0)
    assert world.living(Role.PS) == ["ps-1"]
    assert world.said("no processor") == words


def test_a_node_that_hangs_beside_some_other_load_is_replaced_a_little_later() -> None:
    world = running()
    beats(world, 2 * HEARTBEAT_S, moves=False, starved=0.2)
    assert world.living(Role.PS) == ["ps-1"]


def test_a_node_that_is_silent_while_it_loads_is_replaced_after_the_usual_limit(words) -> None:
    world = loading()
    beats(world, 10, moves=True, doing=LOADS)
    beats(world, HEARTBEAT_S + 15, moves=True, silent=True)
    assert not world.nodes["ps-1"].is_alive
    assert world.said("no report") == words


# what a node says


def test_a_busy_node_sends_heartbeats_with_what_it_does_and_its_progress(monkeypatch) -> None:
    goes_on, load = threading.Event(), ParameterStore.load

    def slow(store, part, owned, between, **others):
        between()
        assert goes_on.wait(LIMIT_S)
        load(store, part, owned, between, **others)

    monkeypatch.setattr(ParameterStore, "load", slow)
    with Nodes() as nodes:
        nodes.start_ps(1)
        (saved,) = nodes.save(["ps0"])
        nodes.send("ps0", m.Load(9, 0, 1, even_bucket_owner(1), (PartSource(*saved),)))
        first, second = (nodes.receive(m.Alive, "ps0")[0] for _ in range(2))
        while first.doing != LOADS or second.n_step != first.n_step:  # until it stands still, and says so
            first, second = second, nodes.receive(m.Alive, "ps0")[0]
        goes_on.set()
        assert nodes.receive(m.Loaded, "ps0")[0].ps_epoch == 9
        assert until(lambda: nodes.receive(m.Report)[0].doing == "")


# real processes


N_ROW = 1_500_000  # a tenth of a core takes several times the heartbeat's limit for them
HASHED = replace(MODEL, embedding=Embedding.HASH)
DRIVEN = replace(
    SPEC,
    model=HASHED,
    plan=ResourcePlan(RolePlan(1, 0.5, 512), RolePlan(1, 1.0, 2048)),
    heartbeat_timeout_s=5.0,
)


class Driver:
    """A real job master, and real PS processes that say Hello to it; workers are never started."""

    def __init__(self, nodes: Nodes, source: RestorableCheckpoint) -> None:
        self.nodes, self.processes, self.events = nodes, {}, []
        capacity = Capacity((NodeShape(8.0, 65536),))
        self.master = JobMaster(
            DRIVEN, FEATURES, capacity, folder=str(nodes.folder), evaluate=ScoreSums.evaluate, origin=source
        )
        self.do(self.master.start(time.monotonic()))

    def do(self, orders):
        for order in orders:
            match order:
                case StartNode(name, Role.PS):
                    self._start(name)
                case StopNode(name) if name in self.processes:
                    self.processes[name].kill()
                case Send(name, message) if name in self.processes:
                    self.nodes.send(name, message)
                case Emit(event):
                    self.events.append(event)

    def _start(self, name):
        path = self.nodes.folder / f"{name}.json"
        path.write_bytes(to_json(self.nodes.config(name, Role.PS)))
        command = [sys.executable, "-m", "dlrover_nb.core.runtime.node", str(path)]
        self.processes[name] = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def turn(self):
        """Take what has come, then let the master look at the time; as its loop does."""
        end_s = time.monotonic() + 0.2
        while self.nodes.router.poll(max(0, 1000 * (end_s - time.monotonic()))):
            sender, *frames = self.nodes.router.recv_multipart(zmq.NOBLOCK)
            message, arrays = decode(frames)
            if not isinstance(message, m.LinesWritten):
                self.do(self.master.on_message(sender.decode(), message, time.monotonic(), arrays))
        self.do(self.master.tick(time.monotonic()))

    def run_until(self, condition):
        def turned():
            self.turn()
            return condition()

        return until(turned, lambda: [e for e in self.events if isinstance(e, PhaseChanged)])

    def close(self):
        for process in self.processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def driver(monkeypatch):
    """A job whose first PS begins with many rows of a checkpoint, in the slower kernel."""
    monkeypatch.setenv("DLROVER_NB_KERNEL", "numpy")
    with Nodes(spec=DRIVEN) as nodes:
        empty = ParameterStore(HASHED, 0, 0).export()
        ids, table = np.arange(N_ROW), np.ones((N_ROW, empty.table.shape[1]), np.float32)
        written = ps_checkpoint.write(nodes.folder / "part", StorePart(ids, table, 0, empty.dense[:, :0]))
        files = ((str(nodes.folder / "part"), written.sha256),)
        manifest = Manifest(1, 0.0, 1, even_bucket_owner(1), files, N_ROW, written.n_byte, None)
        driver = Driver(nodes, RestorableCheckpoint(manifest, (None,), is_on_disk=True))
        yield driver
        driver.close()


@pytest.fixture
def slowed(driver):
    """Lets the first PS run for a tenth of the time, from its Hello until it has loaded."""
    driver.run_until(lambda: driver.master.stage is Stage.LOADING)
    pid, ends = driver.processes["ps-0"].pid, threading.Event()

    def alternate():
        while not ends.wait(0.05):
            driver.processes["ps-0"].send_signal(signal.SIGSTOP)
            ends.wait(0.45)
            driver.processes["ps-0"].send_signal(signal.SIGCONT)

    thread = threading.Thread(target=alternate, daemon=True)
    thread.start()
    yield pid
    ends.set()
    thread.join()


@pytest.mark.release
def test_a_ps_with_a_tenth_of_a_core_loads_a_large_part_and_is_not_replaced(driver, slowed) -> None:
    driver.run_until(lambda: driver.master.stage is Stage.SERVING)
    assert list(driver.processes) == ["ps-0"]
    assert driver.processes["ps-0"].pid == slowed
    driver.run_until(lambda: any(node.last and node.last.n_row == N_ROW for node in driver.master.nodes))


@pytest.mark.release
def test_a_ps_that_is_stopped_while_it_loads_is_replaced(driver) -> None:
    driver.run_until(lambda: driver.master.stage is Stage.LOADING)
    driver.processes["ps-0"].send_signal(signal.SIGSTOP)
    driver.run_until(lambda: "ps-1" in driver.processes)
    driver.run_until(lambda: driver.master.stage is Stage.SERVING)
    told = [event.message for event in driver.events if isinstance(event, PhaseChanged)]
    assert any("ps-0 was lost: it sent no report for" in text for text in told)
