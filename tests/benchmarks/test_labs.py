"""The lab files of the papers' tables: each is read, runs, and says what in it is calibrated and what is not."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.cases import for_each

from dlrover_nb.core.lab import read_lab, run_lab

LABS = sorted((Path(__file__).parents[2] / "benchmarks/labs").glob("*.yaml"))


@for_each("path", LABS, ids=lambda path: path.stem)
def test_a_lab_of_a_paper_says_what_is_calibrated_and_what_the_paper_has(path) -> None:
    lab = read_lab(path)
    assert lab.name == path.stem
    assert lab.published
    notes = " ".join(lab.notes)
    assert "Calibrated: " in notes
    assert "Not calibrated: " in notes


@pytest.mark.more
@for_each("path", LABS, ids=lambda path: path.stem)
def test_a_lab_of_a_paper_runs(path) -> None:
    lab = read_lab(path)
    few = replace(lab, workload=replace(lab.workload, jobs=3), seeds=(0,))
    result = run_lab(few)
    assert [each.contender for each in result.scores] == [each.name for each in lab.contenders]
    assert result.published == lab.published
