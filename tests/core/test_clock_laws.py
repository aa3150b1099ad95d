"""Laws of a job's time: it never goes back, and measures no more than has truly passed, whatever is set."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.clock import Anchor, SystemClock, ThisMachine

DAY_S, HOUR_S = 86_400.0, 3600.0
CLOSE = 1e-3  # s: a float of seconds since the epoch has a resolution of some 0.2 µs


@dataclass
class Host:
    """A machine whose clocks are as the test has them."""

    boot: str = "first"
    wall: float = 1.7e9
    up: float = 500.0

    def wall_s(self) -> float:
        return self.wall

    def up_s(self) -> float:
        return self.up

    def wait(self, seconds: float) -> None:
        self.wall += seconds
        self.up += seconds


class Life:
    """A job over several masters, and how long it has truly been there."""

    def __init__(self) -> None:
        self.host, self.n_boot = Host(), 0
        self.clock = SystemClock(self.host)
        self.anchor: Anchor | None = self.clock.anchor
        self.begun_s = self.last_s = self.clock.now_s()
        self.true_s = self.away_s = 0.0

    def look(self) -> None:
        now_s = self.clock.now_s()
        assert now_s >= self.last_s - CLOSE
        assert now_s - self.begun_s == pytest.approx(self.true_s - self.away_s, abs=CLOSE)
        self.last_s = now_s

    def wait(self, seconds: float) -> None:
        self.host.wait(seconds)
        self.true_s += seconds

    def resume(self, down_s: float, lost_s: float, *, elsewhere: bool) -> None:
        """Let another master continue: what the last one wrote is `lost_s` old when it dies."""
        known_s, before_s = self.last_s, self.true_s - self.away_s
        self.wait(lost_s + down_s)
        if elsewhere:
            self.n_boot += 1
            self.host = Host(f"boot {self.n_boot}", self.host.wall, up=7.0)
            self.away_s = self.true_s - before_s
        self.clock = SystemClock(self.host).continued(self.anchor, known_s)
        self.anchor = self.clock.anchor


STEPS = st.sampled_from([-365 * DAY_S, -DAY_S, -HOUR_S, -0.5, 0.5, HOUR_S, DAY_S, 365 * DAY_S])
SPANS = st.floats(0, 2 * DAY_S)
DEEDS = st.one_of(
    st.tuples(st.just("wait"), SPANS),
    st.tuples(st.just("set"), STEPS),
    st.tuples(st.just("resume"), SPANS, st.floats(0, 2), st.booleans()),
)


@given(st.lists(DEEDS, max_size=30))
def test_job_time_never_goes_back_and_counts_what_passed_but_for_time_on_no_machine(
    deeds: list[tuple[str, float] | tuple[str, float, float, bool]],
) -> None:
    life = Life()
    for deed in deeds:
        match deed:
            case ("set", float(step_s)):
                life.host.wall += step_s
            case ("resume", float(down_s), float(lost_s), bool(elsewhere)):
                life.resume(down_s, lost_s, elsewhere=elsewhere)
            case (_, float(seconds), *_):
                life.wait(seconds)
        life.look()


@pytest.mark.parametrize("step_s", [-HOUR_S, DAY_S])
def test_a_master_on_the_same_boot_counts_its_absence_whatever_the_wall_clock_says(step_s: float) -> None:
    host = Host()
    first = SystemClock(host)
    host.wait(100.0)
    known_s = first.now_s()
    host.wait(40.0)
    host.wall += step_s
    second = SystemClock(host).continued(first.anchor, known_s)
    assert second.now_s() == first.now_s() == 1.7e9 + 140.0
    assert second.anchor == first.anchor


@pytest.mark.parametrize("anchor", [None, Anchor(1.7e9, 500.0, ""), Anchor(1.7e9, 500.0, "another boot")])
def test_without_a_boot_in_common_time_continues_at_the_last_event(anchor: Anchor | None) -> None:
    host = Host(boot="" if anchor and not anchor.boot else "first", wall=1.9e9)
    clock = SystemClock(host).continued(anchor, 1.75e9)
    host.wait(5.0)
    assert clock.now_s() == 1.75e9 + 5.0


def test_a_time_known_of_the_job_is_not_undercut_by_its_anchor() -> None:
    host = Host()
    clock = SystemClock(host).continued(Anchor(1.7e9, host.up, host.boot), 1.7e9 + HOUR_S)
    assert clock.now_s() == 1.7e9 + HOUR_S


def test_this_machine_tells_one_boot_to_all_its_processes() -> None:
    machine = ThisMachine()
    assert machine.boot == ThisMachine().boot != ""
    assert machine.up_s() <= machine.up_s()
