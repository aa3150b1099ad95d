"""Records of the core in a notebook: text and HTML after `%load_ext`, plain Python again after `%unload_ext`."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each
from support.jobs import builders as b

from dlrover_nb.api.views import reprs
from dlrover_nb.core.history.runs.prediction_scores import scoreboard
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.decisions.query_answers import Explanation, LogLine, Weighed
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.views.summary import summarize

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

SNAPSHOT = b.snapshot()
PROPOSAL = b.proposal()
RECORDS: dict[str, Any] = {
    "JobSnapshot": SNAPSHOT,
    "JobSpec": JobSpec("ctr"),
    "JobSummary": summarize(SNAPSHOT),
    "ResourcePlan": SNAPSHOT.target,
    "Candidate": PROPOSAL.candidate,
    "ParetoFront": SNAPSHOT.front,
    "Proposal": PROPOSAL,
    "Decision": Decision(Verdict.SCALE, "ada", b.START_S, plan=SNAPSHOT.target, why="more", id="d3"),
    "Outcome": SNAPSHOT.outcomes[0],
    "Curve": SNAPSHOT.curves[0],
    "MemoryLine": SNAPSHOT.memory[0],
    "FitReport": SNAPSHOT.fit,
    "Explanation": Explanation(
        PROPOSAL.candidate.plan, "p2", PROPOSAL.candidate, PROPOSAL.baseline, "it is faster", ("workers: 3",)
    ),
    "Weighed": Weighed(SNAPSHOT.target, None, "must be <= 3 workers, got 9"),
    "LogLine": LogLine(b.START_S, "worker-0", "INFO", "ready"),
    "Scoreboard": scoreboard({"ctr": SNAPSHOT.outcomes}),
}


def shown(shell: InteractiveShell, record: object) -> dict[str, str]:
    bundle: dict[str, str] = shell.display_formatter.format(record)[0]
    return bundle


@for_each("name", RECORDS)
def test_a_record_shows_itself_in_text_and_html(shell: InteractiveShell, name: str) -> None:
    bundle = shown(shell, RECORDS[name])
    assert set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/html"].startswith('<div class="dlrover-card"')
    assert not re.search(r"<(script|link|img|iframe)", bundle["text/html"])
    assert bundle["text/plain"] != repr(RECORDS[name])


@pytest.mark.parametrize("name", ["ParetoFront", "Curve"])
def test_a_front_and_a_curve_bring_their_picture(shell: InteractiveShell, name: str) -> None:
    assert "<svg" in shown(shell, RECORDS[name])["text/html"]


def test_every_view_is_there_and_every_record_is_tried() -> None:
    untried = {"RunHistory"}  # shown by the history's own tests: it is made of a database
    assert {name for _, name in reprs._VIEWS} == set(RECORDS) | untried
    for (module, name), (where, what) in reprs._VIEWS.items():
        assert hasattr(importlib.import_module(module), name)
        assert callable(getattr(importlib.import_module(where), what))


def test_records_within_a_list_stay_short(shell: InteractiveShell) -> None:
    assert shown(shell, [PROPOSAL.candidate.plan])["text/plain"].startswith("[ResourcePlan(")


def test_unloading_gives_plain_python_back(shell: InteractiveShell) -> None:
    shown(shell, SNAPSHOT.target)
    shell.run_line_magic("unload_ext", "dlrover_nb")
    for name, record in RECORDS.items():
        assert set(shown(shell, record)) == {"text/plain"}, name
    shell.run_line_magic("load_ext", "dlrover_nb")
    assert "text/html" in shown(shell, SNAPSHOT.target)


@given(st.text(alphabet="<>&\"'a/ ", min_size=1))
def test_whatever_a_cluster_says_is_no_markup(text: str) -> None:
    hostile = f"<script>{text}</script>"
    line = LogLine(b.START_S, "worker-0", "INFO", hostile)
    weighed = Weighed(SNAPSHOT.target, None, hostile)
    for view in (reprs.line_view(line), reprs.weighed_view(weighed)):
        assert "<script" not in view.html()
