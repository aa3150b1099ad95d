"""The pure parts of the benchmark of jobs with deadlines, and its streams."""

import importlib
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def modules(monkeypatch):
    """Return the three modules; the folder is on the path for this test only."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return [importlib.import_module(name) for name in ("qore_jobs", "qore_stream", "qore_baselines")]


def outcome(stream, *timeouts: float):
    return stream.Outcome(timeouts, (0.5, 0.7), (0.4,), 10.0)


def test_a_job_that_ends_at_its_deadline_is_in_time_and_only_lateness_counts(modules):
    jobs, stream, _ = modules
    row = jobs.figures([outcome(stream, -0.5, 0.0), outcome(stream, 0.3, 0.1)])
    assert row["deadline_satisfaction"] == 0.5
    assert row["mean_timeout"] == pytest.approx(0.1)
    assert row["utilisation"] == pytest.approx(0.6)
    assert row["core_h"] == 20.0


def test_a_baseline_counts_by_its_best_variant(modules):
    jobs, stream, _ = modules
    ways = {
        "qore": outcome(stream, -1.0, -1.0),
        "fcfs": outcome(stream, 1.0, 1.0),
        "optimus, 1 node": outcome(stream, 1.0, 1.0),
        "optimus, 2 nodes": outcome(stream, -1.0, 1.0),
        "slaq, 1 node": outcome(stream, -1.0, 2.0),
        "slaq, 2 nodes": outcome(stream, -1.0, 1.0),
    }
    line = jobs.line_of({(0, 1.1): ways}, (1.1,))
    assert line["variant_of"] == {"optimus": "optimus, 2 nodes", "slaq": "slaq, 2 nodes"}
    assert (line["deadline_satisfaction"], line["over_fcfs"], line["over_optimus"]) == (1.0, 1.0, 0.5)
    assert line["by_load"]["1.1"] == line["policies"]


def test_drawn_loss_curves_fall_from_the_first_loss_to_the_last(modules):
    baselines = modules[2]
    for seed in range(20):
        curve = baselines.loss_curve(1000, np.random.default_rng(seed))
        assert baselines.FIRST_LOSS[0] <= curve.loss(0) <= baselines.FIRST_LOSS[1]
        assert baselines.LAST_LOSS[0] <= curve.loss(1000) <= baselines.LAST_LOSS[1]


def test_requests_are_within_the_bounds_and_scatter(modules):
    stream, rng = modules[1], np.random.default_rng(1)
    plans = [stream.request(rng) for _ in range(30)]
    assert len(set(plans)) > 20
    assert all(plan.total_cpu <= stream.BOUNDS.quota_cpu for plan in plans)
