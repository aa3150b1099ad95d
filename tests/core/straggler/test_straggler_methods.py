"""The rule and the solution that a job names: ours and those of packages, the broken ones too."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.cases import for_each
from support.plans.restarted_controller import difference, restarted
from support.plans.slow_world import SlowJob

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.jobfile import known_values, parse_job
from dlrover_nb.core.straggler import RULES, SOLUTIONS, Monitor, MonitorSettings, Thresholds, Window
from dlrover_nb.core.straggler.methods import find_methods, find_rule, find_solution, shipped
from dlrover_nb.core.straggler.situation import Situation
from dlrover_nb.core.structs.decisions.actions import BackupWorkers
from dlrover_nb.core.structs.job.solution_names import RuleName
from dlrover_nb.core.structs.job.spec_choices import Mode, Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.structs.job.job import JobSpec

PACKAGE = """
import numpy as np

from dlrover_nb.core.straggler import BackupWorkers, Proposed, Rule

def without_one(findings, situation):
    if not findings or situation.n_backup:
        return []
    return [Proposed(BackupWorkers(1), "the slowest is left out")]

def fails(findings, situation):
    raise ZeroDivisionError("no workers")

def returns_words(findings, situation):
    return ["do something"]

def slowest(window, thresholds):
    return window.means == np.nanmax(window.means)

def too_long(window, thresholds):
    return np.ones(len(window.means) + 1, dtype=bool)

SLOWEST = Rule("the slowest of all", slowest)
TOO_LONG = Rule("never right", too_long)
"""
POINTS = """
[dlrover_nb.straggler_solutions]
without-one = their_stragglers:without_one
fails = their_stragglers:fails
returns-words = their_stragglers:returns_words
no-function = their_stragglers:SLOWEST
[dlrover_nb.straggler_rules]
slowest = their_stragglers:SLOWEST
too-long = their_stragglers:TOO_LONG
no-rule = their_stragglers:slowest
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with rules and solutions."""
    metadata = tmp_path / "their_stragglers-1.0.dist-info"
    metadata.mkdir()
    (tmp_path / "their_stragglers.py").write_text(PACKAGE)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: their-stragglers\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "their_stragglers", raising=False)


def test_a_job_that_names_none_has_antdts_solution_and_the_robust_rule() -> None:
    spec = parse_job("name: x")
    assert shipped(spec) == find_methods(spec) == (RULES["robust"], SOLUTIONS["antdt-nd"])


def test_the_ratio_rule_of_the_paper_can_be_chosen() -> None:
    spec = parse_job("{name: x, straggler_rule: ratio, tuning: {antdt: {slowness_ratio: 1.3}}}")
    assert find_methods(spec).rule is RULES[RuleName.RATIO]

    def slow(own: JobSpec) -> set[str]:
        monitor = Monitor(MonitorSettings.of(own), find_rule(own.straggler_rule))
        for at_s in range(30, 601, 30):
            for node, iter_s in (("worker-0", 1.4), ("worker-1", 1.0), ("worker-2", 1.0)):
                split = TimeSplit(compute_s=iter_s)
                sample = NodeSample(node, Role.WORKER, 0.0, 30.0, 30, 30, iter_s, split, 1.0, 1.0)
                monitor.observe(sample, float(at_s))
        return {each.node for each in monitor.findings(600.0)}

    assert slow(spec) == {"worker-0"}, "1.4 times the mean of the others, and λ is 1.3"
    assert slow(parse_job("{name: x, straggler_rule: ratio}")) == set(), "λ is 1.5"


@for_each(
    ("text", "words"),
    [
        ("stragglers: antdt", "unknown stragglers 'antdt'; did you mean antdt-"),
        ("straggler_rule: robus", "unknown straggler_rule 'robus'; did you mean robust"),
        ("straggler_rule: 3", "straggler_rule must be one of robust, ratio"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(text: str, words: str) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        parse_job(f"name: x\n{text}")
    assert words in str(refusal.value)


@pytest.mark.usefixtures("package")
def test_a_job_file_may_name_what_a_package_adds() -> None:
    assert "without-one" in known_values("stragglers")
    spec = parse_job("{name: x, stragglers: without-one, straggler_rule: slowest}")
    methods = find_methods(spec)
    proposed = methods.solution((), Situation(Sync.BSP, ()))
    assert (methods.rule.words, proposed) == ("the slowest of all", ())


@pytest.mark.usefixtures("package")
@for_each(
    ("name", "words"),
    [("no-function", "must be a function, got Rule"), ("without-on", "did you mean without-one")],
)
def test_what_is_no_solution_is_refused(name: str, words: str) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        find_solution(name)
    assert words in str(refusal.value)


@pytest.mark.usefixtures("package")
def test_what_is_no_rule_is_refused(error_words) -> None:
    with error_words(InvalidValueError):
        find_rule("no-rule")


@pytest.mark.usefixtures("package")
@for_each(
    ("name", "words"),
    [
        (
            "fails",
            "fails of dlrover_nb.straggler_solutions failed with ZeroDivisionError: no workers; repair",
        ),
        ("returns-words", "returns-words has no solution: it must return Proposed actions"),
    ],
)
def test_a_solution_that_fails_is_told_in_the_story_and_the_job_goes_on(name: str, words: str) -> None:
    job = SlowJob(stragglers=name, mode=Mode.AUTO)
    job.slow["worker-1"] = 3.0
    job.run(90)
    assert job.told(words)
    assert job.view.mitigations == ()


@pytest.mark.usefixtures("package")
def test_a_rule_that_fails_finds_nothing_and_says_so_once(caplog: pytest.LogCaptureFixture, words) -> None:
    rule, window = find_rule("too-long"), Window(np.ones((3, 10)), np.ones(3), 10)
    for _ in range(3):
        assert not rule.is_slow(window, Thresholds()).any()
    assert [record.message for record in caplog.records] == [words]


@pytest.mark.usefixtures("package")
def test_a_packages_rule_and_solution_decide_in_a_job_and_after_a_restart_of_its_master(words) -> None:
    job = SlowJob(stragglers="without-one", straggler_rule="slowest", mode=Mode.AUTO)
    job.slow["worker-1"] = 3.0
    job.run(60)
    assert {each.node for each in job.view.stragglers if each.role is Role.WORKER} == {"worker-1"}
    assert [each.action.action for each in job.view.mitigations] == [BackupWorkers(1)]
    assert job.view.mitigations[0].why == words
    assert not difference(job.controller, restarted(job.controller))
    job.check_replay()
