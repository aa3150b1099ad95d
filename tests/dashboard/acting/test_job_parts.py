"""Parts of the page of a job: what is new since the last look, what drifts, how much memory a change leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each
from support.jobs import builders as b

from dlrover_nb.api.exports import export
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.nodes import Options
from dlrover_nb.core.history.stores.notes import Note
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.dashboard.job_parts.change import headroom_table
from dlrover_nb.dashboard.job_parts.drift import MOST_FILE, drift_blocks, file_text, running_rows
from dlrover_nb.dashboard.job_parts.since import ONE_LOOK_S, Look, events_since, look_of, since_blocks
from dlrover_nb.widgets.blocks import View

STORY = (
    "+0.0 s  job submitted",
    "+150.0 s  plan runs",
    "+200.5 s  ps ps-0 was killed for lack of memory at 512 MiB",
)
SNAPSHOT = b.snapshot(story=STORY)
times = st.floats(0, 1e9)


def words(blocks):
    return View("", tuple(blocks)).text()


def note(look, at_s):
    return Note("ada", "looked", "ads a", at_s, look.text)


@given(times, times)
def test_the_first_look_is_since_the_beginning(now_s, job_s):
    assert look_of(None, now_s, job_s) == Look(None, job_s)


@given(times, st.floats(0, ONE_LOOK_S - 1), times, st.floats(0, 1e4), st.none() | times)
def test_looks_that_follow_each_other_are_one(now_s, later_s, job_s, passed_s, since_s):
    first = Look(since_s, job_s)
    assert look_of(note(first, now_s), now_s + later_s, job_s + passed_s).since_s == since_s


@given(times, times)
def test_a_later_look_is_since_the_one_before(now_s, job_s):
    last = note(Look(None, job_s), now_s)
    assert look_of(last, now_s + ONE_LOOK_S + 1, job_s + 10) == Look(job_s, job_s + 10)


def test_a_job_of_the_same_name_that_began_later_is_looked_at_for_the_first_time():
    assert look_of(note(Look(5.0, 1000.0), 0.0), 10.0, 20.0).since_s is None
    assert look_of(Note("ada", "looked", "", 0.0, "of another release"), 10.0, 20.0).since_s is None


@given(st.floats(0, 300))
def test_only_what_came_after_the_look_is_told(after_s):
    told = events_since(SNAPSHOT, b.START_S + after_s)
    assert all(event.at_s > b.START_S + after_s for event in told)
    assert len(told) == sum(offset > after_s for offset in (0.0, 150.0, 200.5)) or after_s in {
        0.0,
        150.0,
        200.5,
    }


def test_changes_are_told_with_who_and_deaths_with_why():
    told = words(since_blocks(SNAPSHOT, b.START_S + 100))
    assert "d1 reject p1 by ada" in told
    assert "ps-0 was killed for lack of memory" in told
    assert "1w x 0.5 + 1p x 0.25 after 2.1 s" in told
    assert "Nothing has happened" in words(since_blocks(SNAPSHOT, b.START_S + 1000))


def test_what_runs_as_it_is_planned_does_not_drift_and_a_lost_node_does():
    assert not any(row[3] for row in running_rows(SNAPSHOT) if "nodes" in row[0])
    lost = replace(SNAPSHOT, nodes=SNAPSHOT.nodes[:1])
    assert ("ps: nodes", "1", "0", "differs") in tuple(running_rows(lost))
    assert "differ from the plan" in words(drift_blocks(lost, None))
    assert "no nodes are running" in words(drift_blocks(replace(SNAPSHOT, phase=JobPhase.STOPPED), None))


def test_a_file_is_compared_with_the_job_as_it_is_wanted():
    file = export(SNAPSHOT, "elasticjob", "current", Options()).text
    assert file_text(file.encode()) == file
    assert "exactly what the job is" in words(drift_blocks(SNAPSHOT, file))
    wider = replace(SNAPSHOT, target=b.BETTER_PLAN)
    told = words(drift_blocks(wider, file))
    assert "plan.worker.count" in told
    assert "differs in" in told


@for_each("content", [b"", b"\xff\xfe", b"a: [", b"kind: ConfigMap", b"x" * (MOST_FILE + 1)])
def test_what_is_no_export_is_refused_with_a_reason(content):
    with pytest.raises(InvalidValueError):
        file_text(content)


def test_a_limit_that_grows_leaves_more_memory_and_ps_that_are_spread_anew_are_not_guessed():
    roomy = replace(b.NOW_PLAN, ps=replace(b.NOW_PLAN.ps, memory_mib=1024))
    rows = {row[0]: row for row in headroom_table(SNAPSHOT, roomy).rows}
    assert (rows["ps"][2], rows["ps"][3]) == ("18 %", "59 %")
    assert rows["worker"][2] == rows["worker"][3]
    more = replace(b.NOW_PLAN, ps=replace(b.NOW_PLAN.ps, count=2))
    assert {row[0]: row for row in headroom_table(SNAPSHOT, more).rows}[str(Role.PS)][3] == "-"
