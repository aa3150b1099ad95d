"""Runs side by side: the actions against stragglers of each, counted and in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.jobs import builders as b
from support.jobs.builders import HOSTILE

from dlrover_nb.core.client.past.history_queries import RunHistory
from dlrover_nb.core.history import JobRun
from dlrover_nb.core.structs.decisions.actions import BackupWorkers
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.widgets.blocks import Table
from dlrover_nb.widgets.past.compare import compare_view

APPLIED, FAILED = ProposalStatus.APPLIED, ProposalStatus.FAILED


def history(job, *mitigations):
    spec = JobSpec(job, owner="ada")
    run = JobRun(f"{job}@1", job, "ada", spec, b.START_S, JobPhase.SUCCEEDED, b.START_S + 900, "")
    return RunHistory(run, (), (), (), (), (), mitigations)


def table(view, title):
    return next((each for each in view.blocks if isinstance(each, Table) and each.title == title), None)


@pytest.fixture
def acted():
    return history(
        "ads",
        b.mitigation("m1", status=APPLIED, decision="d1"),
        b.mitigation("m2", BackupWorkers(1), status=APPLIED, decision="d2"),
        replace(b.mitigation("m3", status=FAILED, decision="d3"), note=HOSTILE),
        b.mitigation("m4", status=ProposalStatus.REJECTED),
        b.mitigation("m5"),
    )


def test_actions_that_were_applied_and_that_failed_are_counted_for_each_run(acted):
    view = compare_view([acted, history("feed"), history("rank", b.mitigation(status=FAILED, decision="d1"))])
    rows = {row[0]: row[1:] for row in table(view, "Side by side").rows}
    assert rows["actions applied and failed"] == ("2 and 1", "0 and 0", "0 and 1")


def test_each_action_is_told_in_words_with_its_run_its_time_and_what_became_of_it(acted):
    view = compare_view([history("feed"), acted])
    assert [row[2:] for row in table(view, "Actions against stragglers").rows] == [
        ("restart worker-1", "in effect"),
        ("go on without the 1 slowest worker of each step", "in effect"),
        ("restart worker-1", f"failed ({HOSTILE})"),
        ("restart worker-1", "rejected"),
        ("restart worker-1", "open"),
    ]
    assert {row[:2] for row in table(view, "Actions against stragglers").rows} == {("ads@1", "4:45")}
    assert HOSTILE not in view.html()


def test_runs_without_an_action_have_no_table_of_them():
    assert table(compare_view([history("feed"), history("rank")]), "Actions against stragglers") is None
