"""What a program reports in the form of Kubeflow Trainer, in the views of its job."""

from rich.console import Console
from support.cases import for_each
from support.jobs import builders

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.training.reported import TrainerStatus
from dlrover_nb.core.structs.views.summary import left_of, summarize
from dlrover_nb.terminal import render
from dlrover_nb.widgets.jobs.status import summary_facts

AT_S = builders.START_S + 300
TOLD = TrainerStatus(AT_S - 12, 45, 3612, (("loss", "0.2347"), ("accuracy", "0.98")))


def test_status_and_terminal_say_what_was_reported_and_when(words):
    shown = builders.snapshot(reported=TOLD)
    told = dict(summary_facts(shown))["reported"]
    assert told == words
    console = Console(width=200)
    with console.capture() as captured:
        console.print(render(shown))
    assert f"reported  {told}" in captured.get()


def test_nothing_stands_there_where_nothing_was_reported(words):
    assert "reported" not in dict(summary_facts(builders.snapshot()))
    bare = builders.snapshot(reported=TrainerStatus(AT_S))
    assert dict(summary_facts(bare))["reported"] == words


@for_each(("ago_s", "left"), [(0, 100.0), (40, 60.0), (500, 0.0), (-5, 100.0)])
def test_the_remaining_time_that_was_told_passes(ago_s, left):
    shown = builders.snapshot(reported=TrainerStatus(AT_S - ago_s, 45, 100))
    assert summarize(shown).left_s == left


def test_the_speed_counts_where_no_time_was_told_and_nothing_after_the_end():
    plain = left_of(builders.snapshot())
    assert plain is not None
    assert left_of(builders.snapshot(reported=TrainerStatus(AT_S, 45))) == plain
    assert left_of(builders.snapshot(reported=TOLD, phase=JobPhase.SUCCEEDED)) is None
