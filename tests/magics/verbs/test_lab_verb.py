"""The verb `lab`: a file, a cell or flags; functions of the notebook; what a terminal and a program read."""

from __future__ import annotations

import json

import pytest
from IPython.core.error import UsageError

import dlrover_nb

SHORT = ("--jobs", "3", "--seeds", "2", "--contenders", "fixed-plan,elastic-scheduling")


def test_a_line_without_a_file_compares_policies_on_drawn_jobs(run, memory) -> None:
    code, out, _ = run("lab", *SHORT)
    assert code == 0
    assert "3 drawn jobs in 1 day," in out
    assert "elastic-scheduling" in out
    assert "mean completion time" in out
    assert not memory.connected  # no cluster is needed


def test_json_has_a_row_for_each_figure_and_each_job(run) -> None:
    code, out, _ = run("lab", *SHORT, "--json")
    content = json.loads(out)
    assert code == 0
    assert (content["n_job"], content["n_seed"]) == (3, 2)
    ratios = {r["contender"]: r["median"] for r in content["figures"] if r["figure"] == "jct_over_first"}
    assert ratios["fixed-plan"] == 1
    assert len(content["jobs"]) == 2 * 2 * 3


def test_a_cell_holds_a_lab_file_and_names_a_function_of_the_notebook(shell) -> None:
    shell.run_cell("def keep(state):\n    return None\n")
    text = "workload: {jobs: 2}\nseeds: 1\n"
    shown = shell.run_cell_magic("dlrover", "lab --contenders fixed-plan,keep", text)
    assert [each.contender for each in shown.result.scores] == ["fixed-plan", "keep"]
    assert shown.result.scores[1].ratio.median == 1.0
    html = shown._repr_mimebundle_()["text/html"]
    assert "<svg" in html
    assert "Time against cores" in html


def test_a_mistake_is_one_line_that_says_what_is_right(shell, run, error_words) -> None:
    with pytest.raises(UsageError, match="did you mean jobs"):
        shell.run_cell_magic("dlrover", "lab", "workload: {job: 2}")
    with error_words(UsageError):
        shell.run_cell_magic("dlrover", "lab my.yaml", "seeds: 1")
    code, _, err = run("lab", "nowhere.yaml")
    assert code == 2
    assert "no lab file nowhere.yaml" in err
    code, _, err = run("lab", "--contenders", "optimum", "--jobs", "1")
    assert code == 2
    assert "optimus" in err


def test_a_user_without_past_jobs_is_told_so(run, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    code, _, err = run("lab", "--history", "30")
    assert code == 2
    assert "no finished runs" in err


def test_the_method_changes_what_a_file_says(tmp_path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("name: two\nworkload: {jobs: 9}\ncontenders: [optimus]\nseeds: 3\nnotes: [Drawn.]\n")
    shown = dlrover_nb.lab(path, contenders=[{"policy": "fixed-plan", "name": "mine"}], jobs=2, seeds=[5])
    assert (shown.result.name, shown.result.n_job, shown.result.seeds) == ("two", 2, (5,))
    assert [each.contender for each in shown.result.scores] == ["mine"]
    assert "Drawn." in str(shown)
