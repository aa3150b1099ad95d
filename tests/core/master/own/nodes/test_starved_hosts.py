"""A node that its host gives no processor is not taken for a dead one; a stopped or dead node is still found."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.master.master_world import World, features, in_place, plan, spec
from support.runtime.node_world import World as Nodes
from support.waiting import until

from dlrover_nb.core.master.own.nodes.liveness import LATE_FOR_S, LATE_PART, SILENT_S, STARVED_LIMIT_S
from dlrover_nb.core.runtime.process import agent as agent_module
from dlrover_nb.core.runtime.process.cpu_waits import SilentProcess, SilentWaits, cpu_pressure, own_wait_s
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import PhaseChanged
from dlrover_nb.core.structs.wire import messages as m

if TYPE_CHECKING:
    from pathlib import Path

HEARTBEAT_S = spec().heartbeat_timeout_s
BUSY = "is too busy for its nodes to answer in time"


def running() -> World:
    world = World(spec(plan(1, 1)), features(50_000))
    world.run_until(lambda: in_place(world, plan(1, 1)))
    return world


def silence(world: World, seconds: float, *, waits: float, every_s: float = 1.0) -> None:
    """Let the PS be silent, and its host be read: it waits for a processor for that part of the silence."""
    (name,), end_s = world.living(Role.PS), world.at_s + seconds
    while world.at_s < end_s and world.nodes[name].is_alive:
        for worker in world.living(Role.WORKER):
            world.report(worker)
            while world.hear(worker):
                pass
        silent = [each for each in world.master.silent_nodes(world.at_s) if each.id == name]
        waited = {each.id: waits * (world.at_s - each.since_s - SILENT_S) for each in silent}
        if waited:
            world.do(world.master.on_waits(waited, 0.97, world.at_s))
        world.tick(every_s)


def said(world: World) -> list[str]:
    return [each.message for each in world.told(PhaseChanged) if BUSY in each.message]


def test_a_silent_node_that_its_host_starves_is_kept_and_the_job_says_so_once_with_figures(words) -> None:
    world = running()
    silence(world, 4 * HEARTBEAT_S, waits=1.0)
    assert world.living(Role.PS) == ["ps-0"]
    (text,) = said(world)
    assert text == words


def test_a_silent_node_that_could_run_is_lost_at_the_usual_time() -> None:
    world = running()
    silence(world, HEARTBEAT_S - 1, waits=0.0)
    assert world.living(Role.PS) == ["ps-0"]
    silence(world, 4, waits=0.0)
    assert world.living(Role.PS) == ["ps-1"]
    assert not said(world)


def test_a_host_that_is_busy_for_long_is_spoken_of_once_in_a_while() -> None:
    world = running()
    for _ in range(4):
        silence(world, HEARTBEAT_S, waits=1.0)
        world.report("ps-0")
        late(world, "worker-0", HEARTBEAT_S / 2)
        while world.hear("ps-0"):
            pass
    assert len(said(world)) == 1


def test_patience_with_a_busy_host_has_an_end_and_the_loss_names_the_wait(words) -> None:
    world = running()
    silence(world, STARVED_LIMIT_S, waits=1.0)
    assert world.living(Role.PS) == ["ps-0"]
    silence(world, HEARTBEAT_S + 10, waits=1.0)
    assert world.living(Role.PS) == ["ps-1"]
    assert world.said("no processor") == words


@given(part=st.floats(0.0, 0.9))
def test_a_node_is_lost_no_later_than_its_waits_excuse(part: float) -> None:
    world, began_s = running(), 0.0
    began_s = world.at_s
    silence(world, 3 * STARVED_LIMIT_S, waits=part)
    assert world.living(Role.PS) == ["ps-1"]
    lasted_s = world.at_s - began_s
    excused_s = min(part * lasted_s, STARVED_LIMIT_S)
    assert HEARTBEAT_S <= lasted_s <= HEARTBEAT_S + excused_s + 5.0


def test_a_node_that_speaks_again_has_no_credit_left_of_its_silence() -> None:
    world = running()
    silence(world, 2 * HEARTBEAT_S, waits=1.0)
    world.report("ps-0")
    while world.hear("ps-0"):
        pass
    silence(world, HEARTBEAT_S + 4, waits=0.0)
    assert world.living(Role.PS) == ["ps-1"]


def late(world: World, node: str, late_s: float) -> None:
    world.do(world.master.on_message(node, m.Alive(node, round(world.at_s * 10), late_s=late_s), world.at_s))


def test_a_late_heartbeat_gives_all_nodes_of_its_host_twice_that_time_for_a_while(words) -> None:
    late_s = HEARTBEAT_S / 2
    world = running()
    late(world, "worker-0", late_s)
    (text,) = said(world)
    assert text == words
    silence(world, HEARTBEAT_S + 2 * late_s - 2, waits=0.0)
    assert world.living(Role.PS) == ["ps-0"]
    silence(world, 5, waits=0.0)
    assert world.living(Role.PS) == ["ps-1"]

    world = running()
    late(world, "worker-0", late_s)
    for _ in range(round(LATE_FOR_S / 5) + 1):
        world.round(5.0)
    silence(world, HEARTBEAT_S + 4, waits=0.0)
    assert world.living(Role.PS) == ["ps-1"], "what was long ago says nothing"


def test_a_heartbeat_a_little_late_changes_nothing() -> None:
    world = running()
    late(world, "worker-0", HEARTBEAT_S * LATE_PART - 0.1)
    assert not said(world)
    silence(world, HEARTBEAT_S + 4, waits=0.0)
    assert world.living(Role.PS) == ["ps-1"]


def test_nodes_of_an_earlier_master_that_their_host_starves_are_waited_for() -> None:
    for waits, kept in ((1.0, True), (0.0, False)):
        world = running()
        for node in world.nodes.values():
            node.has_come_up = False  # it gets no turn to say Hello again
        world.crash()
        for _ in range(round(HEARTBEAT_S) + 5):
            silent = {
                each.id: waits * (world.at_s - each.since_s) for each in world.master.silent_nodes(world.at_s)
            }
            if silent:
                world.do(world.master.on_waits(silent, None, world.at_s))
            world.tick(1.0)
        assert ("ps-0" in world.living(Role.PS)) is kept
        assert bool(said(world)) is kept


# what the kernel tells


def test_waits_are_counted_from_the_first_look_after_the_last_word(tmp_path: Path) -> None:
    task = tmp_path / "77" / "task" / "77"
    task.mkdir(parents=True)

    def wait(seconds: float) -> None:
        (task / "schedstat").write_text(f"5 {round(seconds * 1e9)} 9")

    waits, before = SilentWaits(tmp_path), SilentProcess("ps-0", 77, 10.0)
    wait(100.0)
    assert waits.read([before]) == {"ps-0": 0.0}
    wait(104.0)
    assert waits.read([before]) == {"ps-0": 4.0}
    again = SilentProcess("ps-0", 77, 20.0)  # it has spoken meanwhile
    assert waits.read([again]) == {"ps-0": 0.0}
    assert waits.read([]) == {}
    assert waits.read([SilentProcess("ps-1", 78, 0.0)]) == {"ps-1": 0.0}, "it is gone"


def test_pressure_is_read_where_the_kernel_tells_it(tmp_path: Path) -> None:
    path = tmp_path / "cpu"
    assert cpu_pressure(path) is None
    path.write_text("some avg10=97.50 avg60=1.00 avg300=0.00 total=12\n")
    assert cpu_pressure(path) == pytest.approx(0.975)
    path.write_text("")
    assert cpu_pressure(path) is None
    assert own_wait_s(tmp_path / "none") == 0.0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts waits")
def test_a_stopped_process_is_not_excused_by_its_host() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) as process:
        try:
            process.send_signal(signal.SIGSTOP)
            until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, what="its stop")
            waits, silent = SilentWaits(), SilentProcess("ps-0", process.pid, time.monotonic())
            assert waits.read([silent]) == {"ps-0": 0.0}
            assert [waits.read([silent])["ps-0"] for _ in range(20)] == [0.0] * 20
        finally:
            process.kill()


def test_a_node_reports_what_its_thread_of_heartbeats_waited_for_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited = itertools.count(100.0, 7.0)
    monkeypatch.setattr(agent_module, "own_wait_s", lambda: next(waited))
    with Nodes() as nodes:
        nodes.start_ps(1)
        until(lambda: nodes.receive(m.Report)[0].late_s == 7.0, what="a report after a late heartbeat")
