"""A job that has trained nothing yet shows what it waits for, in place of an empty chart."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from rich.console import Console
from support.jobs import builders
from support.jobs.masters import Master
from support.jobs.played_page import PlayedPage

from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.training.shards import ShardCounts
from dlrover_nb.core.structs.views.snapshot import Evaluation, NodePhase
from dlrover_nb.terminal import render
from dlrover_nb.widgets.jobs.status import evaluation_words, fit_words, status_view
from dlrover_nb.widgets.live.job_view_model import JobViewModel

TRAINED = builders.snapshot()
STARTING = replace(
    TRAINED,
    at_s=TRAINED.started_at_s + 12.4,
    phase=JobPhase.STARTING,
    samples_per_s=0.0,
    train=ShardCounts(todo=57, n_sample_total=583_680),
    nodes=(replace(TRAINED.nodes[0], phase=NodePhase.PENDING), TRAINED.nodes[1]),
)
LINE = "Waiting for first steps: 1 of 2 nodes up (12 s)"
CHART = "Throughput over time"


def test_the_status_shows_the_line_until_there_is_a_curve() -> None:
    starting = status_view(STARTING, builders.series())
    trained = status_view(TRAINED, builders.series())
    assert (LINE in starting.text(), CHART in starting.text()) == (True, False)
    assert ("Waiting" in trained.text(), CHART in trained.text()) == (False, True)
    assert LINE in starting.html()


def test_the_terminal_shows_the_line_until_there_is_a_rate() -> None:
    console = Console(width=100, height=40)
    with console.capture() as starting:
        console.print(render(STARTING, [0.0, 0.0]))
    with console.capture() as trained:
        console.print(render(TRAINED, [1.0, 2.0]))
    assert (LINE in starting.get(), "loss 0.1423" in starting.get()) == (True, False)
    assert ("Waiting" in trained.get(), "loss 0.1423" in trained.get()) == (False, True)


def test_the_live_view_draws_the_chart_with_the_first_steps() -> None:
    master = Master(STARTING)
    handle = JobHandle("quick-start", master, user="ada")
    page = PlayedPage(JobViewModel(handle, lambda: None, monotonic=lambda: 0.0))  # never old, on any machine
    chart = page.screen.chart_grid.figures["throughput"].root
    assert (LINE in page.text, chart.visible) == (True, False)
    master.state = replace(TRAINED, at_s=STARTING.at_s + 1)
    page.redraw()
    assert ("Waiting for" in page.text, chart.visible) == (False, True)


def test_a_model_that_learnt_from_other_jobs_alone_has_no_error_of_this_job() -> None:
    assert TRAINED.fit is not None
    note = "No plan was measured yet; the predictions come from similar finished jobs."
    assert fit_words(replace(TRAINED.fit, n_sample=0, n_plan=0, mape=0.0, note=note)) == note


@pytest.mark.parametrize("phase", list(JobPhase))
def test_only_a_job_that_goes_on_promises_a_fit(phase: JobPhase) -> None:
    text = status_view(replace(TRAINED, phase=phase, fit=None), None).text()
    assert ("none yet: no steady samples" in text) is not phase.is_final


def test_a_job_that_ended_without_an_evaluation_does_not_promise_one() -> None:
    bare = replace(TRAINED, evaluation=None, rounds=())
    assert evaluation_words(bare) == "not yet"
    assert evaluation_words(replace(bare, phase=JobPhase.FAILED)) == "none"


@pytest.mark.parametrize(
    ("auc", "optimizer", "words"),
    [
        (
            0.51,
            "adagrad",
            "hardly better than guessing (AUC 0.5); more epochs or --optimizer adam may help",
        ),
        (0.51, "adam", "hardly better than guessing (AUC 0.5); more epochs may help"),
        (0.48, "adam", "hardly better than guessing"),
        (0.62, "adagrad", None),
        (0.3, "adagrad", None),
        (math.nan, "adagrad", None),
    ],
)
def test_a_model_that_guesses_is_said_to(auc: float, optimizer: str, words: str | None) -> None:
    spec = replace(TRAINED.spec, model=replace(TRAINED.spec.model, optimizer=optimizer))
    text = evaluation_words(replace(TRAINED, spec=spec, evaluation=Evaluation(auc, 0.69, 2700)))
    assert text.startswith("AUC ")
    assert words in text if words else "guessing" not in text
