"""Moments that people write: the same on every machine once they are read, and refused in words otherwise."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.jobfile import dump_job, parse_job
from dlrover_nb.core.moments import read_moment, write_moment
from dlrover_nb.core.runtime.node.preflight import validate_job
from dlrover_nb.core.structs.job.job import JobSpec

SIX = datetime(2026, 12, 1, 6, 0, tzinfo=UTC).timestamp()
seconds = st.integers(0, 4_000_000_000)


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata"])
def zone(request, monkeypatch):
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@given(seconds)
def test_what_is_written_is_read_back(at_s):
    assert read_moment(write_moment(at_s)) == at_s


@pytest.mark.parametrize(
    "text",
    ["2026-12-01T06:00Z", "2026-12-01 06:00+00:00", "2026-12-01T07:00:00+01:00", " 2026-12-01T06:00:00Z "],
)
def test_a_zone_that_is_named_counts(text, zone):
    assert read_moment(text) == SIX


def test_without_a_zone_it_is_of_this_machine(zone):
    local = datetime(2026, 12, 1, 6, 0).astimezone().timestamp()
    assert read_moment("2026-12-01 06:00", now_s=SIX - 86_400) == pytest.approx(local, abs=3600), zone


@given(seconds.filter(lambda s: s > 100_000), st.integers(0, 23), st.integers(0, 59))
def test_a_time_of_the_day_is_the_next_one(now_s, hour, minute):
    found = read_moment(f"{hour}:{minute:02}", now_s=now_s)
    assert 0 < found - now_s <= 86_400
    assert (datetime.fromtimestamp(found).astimezone().minute) == minute


@for_each("wrong", ["soon", "2026-12-01", "25:00", "2026-13-01T06:00Z", "", 7, None, True])
def test_what_is_no_moment_is_refused_with_examples(wrong):
    with pytest.raises(
        InvalidValueError, match=r"deadline must be a date with a time: 2026-12-01T06:00Z, .* got"
    ):
        read_moment(wrong, what="deadline")


@pytest.mark.parametrize("text", ["2026-12-01T06:00Z", "2026-12-01T06:00:00Z", "2026-12-01T08:00:00+02:00"])
def test_a_job_file_keeps_its_deadline(text):
    spec = parse_job(f"name: a\ndeadline: {text}")
    assert spec.deadline_at_s == SIX
    assert "deadline: '2026-12-01T06:00:00Z'" in dump_job(spec)
    assert parse_job(dump_job(spec)) == spec
    assert parse_job("name: a\ndeadline: null").deadline_at_s is None


def test_one_deadline_is_enough():
    with pytest.raises(InvalidValueError, match="got both deadline"):
        parse_job("name: a\ndeadline_s: 60\ndeadline: 2026-12-01T06:00Z")
    with pytest.raises(InvalidValueError, match="deadline must be a date with a time"):
        parse_job("name: a\ndeadline: tomorrow")


def test_a_deadline_that_has_passed_is_refused_at_submit():
    with pytest.raises(InvalidValueError, match=r"must be in the future, got 2020-01-01T00:00:00Z, .* s ago"):
        validate_job(JobSpec("a", deadline_at_s=read_moment("2020-01-01T00:00Z")))


def test_a_moment_stays_where_it_is_however_late_the_job_begins():
    spec = JobSpec("a", deadline_at_s=SIX)
    assert spec.due_s(SIX - 100) == spec.due_s(SIX - 5000) == SIX
    assert JobSpec("a", deadline_s=60.0).due_s(SIX) == SIX + 60
    assert JobSpec("a").due_s(SIX) is None
    assert spec.counted_from(SIX - 100).deadline_s == 100
