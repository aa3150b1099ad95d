"""The verb `plan`: goals of a line or a cell, the plan that meets them, and the exit code where none does."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.waiting import until
from support.words import lines_with

from dlrover_nb import cli
from dlrover_nb.cli import ExitCode
from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.magics.arguments import GRAMMAR
from dlrover_nb.magics.commands import Commands
from dlrover_nb.output import CLI


@pytest.fixture(scope="module")
def cluster():
    made = connect("sim", machines=2, speed=600.0)
    handle = made.submit(JobSpec("ads", n_epoch=4000, mode=Mode.MANUAL))
    until(lambda: handle.snapshot().front is not None, what="a front of plans")
    yield made
    made.shutdown(force=True)


@pytest.fixture
def commands(cluster):
    return Commands(lambda *_, **__: cluster, command=CLI, auto_connect=True, address="local")


def test_a_cell_of_goals_finds_the_cheapest_plan_and_says_how_to_order_it(commands):
    shown = commands.run(
        GRAMMAR.parse(["plan", "ads"], has_cell=True), "at most 90 cores\ndone within 900 days"
    )
    assert shown.is_met
    assert shown.answer.plan.plan.total_cpu <= 90
    text = shown.view().text()
    assert "cheapest plan" in text
    assert "at most 90 cores" in text
    assert "<table" in shown.view().html()


def test_goals_that_no_plan_meets_say_what_is_in_the_way_and_end_with_another_code(commands, capsys, words):
    line = ["plan", "ads", "--goal", "≤ 90 cores, done within 1 s"]
    assert cli.main(line, commands=commands) == ExitCode.JOB_FAILED
    told = capsys.readouterr().out
    assert lines_with(told, "goals.") == words
    assert "the earliest finish is" in told
    assert cli.main([*line, "--json"], commands=commands) == ExitCode.JOB_FAILED
    found = json.loads(capsys.readouterr().out)
    assert (found["is_met"], found["plan"]) == (False, None)
    assert found["goals"][1]["nearest"] > 1
    assert cli.main(["plan", "ads", "--goal", "≤ 90 cores"], commands=commands) == ExitCode.DONE


def test_what_is_no_goal_is_a_mistake(commands, capsys, words):
    assert cli.main(["plan", "ads", "--goal", "cheap"], commands=commands) == ExitCode.MISTAKE
    assert capsys.readouterr().err == words


def test_of_a_job_of_which_nothing_is_known_it_says_so(commands, cluster, monkeypatch, error_words):
    handle = cluster.job("ads")
    unknown = replace(handle.snapshot(), front=None)
    monkeypatch.setattr(type(handle.link), "snapshot", lambda _: unknown)
    with error_words(NotFoundError):
        commands.job("ads").plan("≤ 90 cores")
