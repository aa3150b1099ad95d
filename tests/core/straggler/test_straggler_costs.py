"""Gains of actions: never negative, exact for an iteration that can be computed, none where nothing is known."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.straggler.costs import cost_words, gain_of_restart, gain_of_server, seconds_text
from dlrover_nb.core.straggler.situation import Situation, WorkerState
from dlrover_nb.core.straggler.solutions import SOLUTIONS
from dlrover_nb.core.structs.decisions.actions import (
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
)
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.stragglers import Pace, Straggler

PS = ("ps-0", "ps-1")


def situation(*own_s, sync=Sync.BSP, exchange_s=0.5):
    """Return workers with a batch of 100 that take so many seconds of own work."""
    workers = tuple(WorkerState(f"worker-{i}", 100, 100 / s) for i, s in enumerate(own_s))
    return Situation(sync, workers, PS, exchange_s=exchange_s)


def found(node, own_s, peers_s, pace=Pace.PERSISTENT):
    role = Role.PS if node.startswith("ps") else Role.WORKER
    return Straggler(node, role, pace, own_s, peers_s, 600.0, 0.0, "ratio")


def test_in_step_a_restart_saves_what_all_wait_for_the_slowest():
    # An iteration of 3.0 + 0.5 s becomes one of 1.0 + 0.5 s.
    assert gain_of_restart(found("worker-2", 1.0, 1.0), situation(1.0, 1.0, 3.0)) == pytest.approx(
        3.5 / 1.5 - 1
    )


def test_out_of_step_a_restart_adds_the_speed_of_one_worker():
    # Speeds of 1/1.5, 1/1.5 and 1/3.0 iterations per second become three of 1/1.5.
    gain = gain_of_restart(found("worker-2", 1.0, 1.0), situation(1.0, 1.0, 2.5, sync=Sync.ASP))
    assert gain == pytest.approx(3 / 2.5 - 1)


def test_a_worker_that_is_not_the_slowest_gains_nothing_in_step():
    assert gain_of_restart(found("worker-1", 1.0, 1.0), situation(1.0, 2.0, 3.0)) == 0


def test_behind_a_small_batch_a_restart_gains_what_all_batches_lose_by_its_speed():
    workers = tuple(WorkerState(f"worker-{i}", n, float(n)) for i, n in enumerate((100, 25, 100)))
    where = Situation(Sync.BSP, workers, PS, exchange_s=0.5, global_batch=225)
    # Speeds of 100, 25 and 100 rows/s train 225 rows in 1 s, three of 100 in 0.75 s.
    levelled = replace(found("worker-1", 4.0, 1.0), by_rows=True)
    assert gain_of_restart(levelled, where) == pytest.approx(1.5 / 1.25 - 1)
    assert gain_of_restart(replace(levelled, by_rows=False), where) == 0


def test_other_batches_gain_what_the_slowest_saves():
    where = situation(1.0, 1.0, 2.0)
    (proposed,) = SOLUTIONS["antdt-nd"]((found("worker-2", 2.0, 1.0, Pace.TRANSIENT),), where)
    sizes = dict(proposed.action.sizes)
    then_s = max(sizes["worker-0"] / 100, sizes["worker-2"] / 50)
    assert proposed.gain == pytest.approx(2.5 / (then_s + 0.5) - 1)


def test_a_relieved_ps_gains_less_than_a_new_one():
    where, slow = situation(1.0, 1.0), found("ps-1", 0.4, 0.1)
    relieved, new = (gain_of_server(slow, where, times) for times in (2 / (1 + 1 / 4), 1.0))
    assert 0 < relieved < new == pytest.approx(1.5 / 1.2 - 1)


@given(
    st.lists(st.floats(1e-4, 100), min_size=2, max_size=6),
    st.sampled_from(Sync),
    st.floats(0, 10),
    st.floats(1e-4, 10),
    st.floats(1, 20),
)
def test_no_gain_is_negative_or_endless(own_s, sync, exchange_s, peers_s, ratio):
    where = situation(*own_s, sync=sync, exchange_s=exchange_s)
    gains = [
        gain_of_restart(found("worker-0", 1.0, 1.0), where),
        gain_of_restart(replace(found("worker-0", 1.0, 1.0), by_rows=True), where),
        gain_of_server(found("ps-1", ratio * peers_s, peers_s), where, 1.0),
    ]
    assert all(gain is None or 0 <= gain < 1e9 for gain in gains)


def test_what_is_not_known_has_no_gain():
    assert gain_of_restart(found("worker-0", 1.0, 1.0), situation(1.0, 2.0, exchange_s=None)) is None
    assert gain_of_restart(found("worker-9", 1.0, 1.0), situation(1.0, 2.0)) is None
    assert gain_of_server(found("ps-1", 0.6, 0.1), situation(1.0), 1.0) is None  # longer than the exchange
    unmeasured = replace(situation(1.0, 2.0), workers=(WorkerState("worker-0", 100, None),))
    assert gain_of_server(found("ps-1", 0.4, 0.1), unmeasured, 1.0) is None


@for_each(
    ("action", "words"),
    [
        (AdjustBatches((("worker-0", 5),)), "the global batch stays"),
        (BackupWorkers(1), "their rows are trained again"),
        (BackupWorkers(0), "nothing"),
        (AdjustRates((("worker-0", 0.5),)), "lower learning rates"),
        (KillRestart("worker-0", Role.WORKER), "another worker beside it; training goes on"),
        (KillRestart("ps-0", Role.PS), "another ps beside it; a pause"),
        (MoveBuckets("ps-0"), "rows are copied while training goes on"),
    ],
)
def test_each_action_says_what_it_costs(action, words):
    assert words in cost_words(action)


def test_durations_are_told_in_units_that_can_be_read():
    assert [seconds_text(s) for s in (0.0123, 0.1, 12.3)] == ["12.3 ms", "100.0 ms", "12.30 s"]
