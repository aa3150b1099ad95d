"""The verb `brain`: what it refuses, one round on a simulated cluster, and what it shows of the last one."""

from __future__ import annotations

import json

import pytest
from support.cases import for_each
from support.waiting import until

from dlrover_nb import brain, cli
from dlrover_nb.cli import ExitCode
from dlrover_nb.core.brain.cluster_plan import METHODS
from dlrover_nb.core.brain.queue_order import ORDERS
from dlrover_nb.core.connect import connect
from dlrover_nb.core.greedy import WEIGHTS
from dlrover_nb.core.history.stores.leases import LeaseStore
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.magics.commands import Commands
from dlrover_nb.output import CLI


@pytest.fixture
def cluster():
    made = connect("sim", machines=2, speed=600.0)
    made.submit(JobSpec("ads", n_epoch=1_000_000, mode=Mode.AUTO, owner="ada"))
    made.submit(JobSpec("feed", n_epoch=1_000_000, mode=Mode.MANUAL))
    yield made
    made.shutdown(force=True)


@pytest.fixture
def run(cluster, capsys, tmp_path):
    history = f"sqlite:///{tmp_path / 'history.db'}"

    def called(line: str) -> tuple[int, str, str]:
        commands = Commands(lambda *_, **__: cluster, command=CLI, auto_connect=True, address="local")
        code = cli.main([*line.split(), "--history", history, "--name", "here"], commands=commands)
        return (code, *capsys.readouterr())

    called.history = history
    return called


@pytest.mark.more
@for_each(
    ("line", "words"),
    [
        ("brain dance", "unknown action 'dance'"),
        ("brain --interval 0", "--interval: must be above zero, got '0'"),
        ("brain --interval soon", "--interval: must be a number, got 'soon'"),
        ("brain --ceiling ada", "must be OWNER=MONEY, such as ada=12.5, got 'ada'"),
        ("brain --ceiling ada=-2", "must be above zero, got '-2'"),
        ("brain --method magic", "unknown method 'magic'; choose from weighted, greedy, qore"),
        ("brain show", "no brain has planned for here in this history"),
    ],
)
def test_what_it_cannot_do_it_refuses_in_words(run, line, words):
    code, out, err = run(line)
    assert (code, out) == (ExitCode.MISTAKE, "")
    assert words in err


@pytest.mark.more
def test_it_plans_once_and_shows_it_again(run, words):
    def once() -> dict:
        return json.loads(run("brain once --json --weight deadline --ceiling ada=500")[1])

    told = until(lambda: (found := once()) and found["shares"] and found, what="an offer")
    (share,) = told["shares"]
    assert (share["job"], share["owner"], share["refused"]) == ("ads", "ada", "")
    assert told["apart"][0]["job"] == "feed"
    assert told["apart"][0]["why"] == words
    assert json.loads(run("brain show --json")[1])["shares"][0]["job"] == "ads"
    text = run("brain show")[1]
    assert "The brain of here" in text
    assert "Jobs left out" in text


@pytest.mark.more
def test_a_second_brain_does_not_plan_beside_the_first(run, words):
    LeaseStore(run.history).take("brain of here", "the brain of somebody", 600.0)
    code, _, err = run("brain once")
    assert code == ExitCode.MISTAKE
    assert err == words


def test_its_choices_are_those_of_the_planner():
    """The verb names them itself, as the command line reads its options without numpy."""
    assert set(brain.METHODS) == set(METHODS)
    assert set(brain.WEIGHTS) == set(WEIGHTS)
    assert set(brain.ORDERS) == set(ORDERS)
