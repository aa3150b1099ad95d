"""Laws of time travel: the last moment is the job as it ended, and no moment depends on what came later."""

from __future__ import annotations

from dataclasses import fields
from itertools import count, takewhile

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.driver.recorded_life import SMALL, end, live, outcome

from dlrover_nb.core.driver.past import time_travel
from dlrover_nb.core.driver.past.past_walk import MOST_SPEEDS, Speeds
from dlrover_nb.core.driver.past.time_travel import MOST_STATES, Replay
from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.core.rundir import journal
from dlrover_nb.core.rundir.journal import read_events, segments
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.views.moment import HappeningKind, Moment

SEEN = ("mode", "proposals", "decisions", "outcomes", "fit", "front", "memory", "story")
ONCE = settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


def of_view(view):
    return {name: getattr(view, name) for name in SEEN}


@pytest.fixture
def folders(tmp_path):
    numbers = count()

    def new():
        path = tmp_path / str(next(numbers))
        path.mkdir()
        return path

    return new


@pytest.mark.release
@ONCE
@given(st.integers(0, 10**6), st.sampled_from(list(Mode)))
def test_the_last_moment_is_the_job_as_it_ended(folders, seed, mode):
    folder = folders()
    recorded, _, life = live(folder, seed, mode, 60)
    ended = end(recorded, life)
    replay = Replay(folder)
    replay.read_on()
    moment = replay.at(replay.last_s)
    assert of_view(moment) == of_view(ended)
    assert (moment.phase, moment.message) == (JobPhase.SUCCEEDED, "all shards are trained")
    assert moment.n_sample_done == life.n_done
    assert moment.target == life.plan


@pytest.mark.release
@ONCE
@given(st.integers(0, 10**6), st.sampled_from(list(Mode)), st.data())
def test_a_moment_is_what_the_job_said_then(folders, monkeypatch_every, seed, mode, data):
    folder = folders()
    recorded, views, life = live(folder, seed, mode, 40)
    end(recorded, life)
    replay = Replay(folder)
    replay.read_on()
    at_s = data.draw(st.sampled_from(sorted({at_s for at_s, _ in views})))
    then = [view for _, view in takewhile(lambda each: each[0] <= at_s, views)][-1]
    assert of_view(replay.at(at_s)) == of_view(then)


@pytest.mark.more
@ONCE
@given(st.integers(0, 10**6), st.integers(5, 35))
def test_a_moment_does_not_depend_on_later_events(folders, monkeypatch_every, seed, at_s):
    whole = folders()
    recorded, _, life = live(whole, seed, Mode.AUTO, 40)
    end(recorded, life)
    assert len(segments(whole)) == 1
    part = folders()
    short = journal.Journal(part)
    for event in read_events(whole):
        if event.at_s > at_s:
            break
        short.append(event)
    short.close()
    replays = [Replay(folder) for folder in (whole, part)]
    for replay in replays:
        replay.read_on()
    long, cut = (replay.at(at_s) for replay in replays)
    same = {field.name: getattr(long, field.name) == getattr(cut, field.name) for field in fields(Moment)}
    assert all(same.values()), same


@pytest.fixture
def monkeypatch_every(monkeypatch):
    """Keep a state every few events, so that moments are reached from kept ones."""
    monkeypatch.setattr(time_travel, "FIRST_EVERY", 15)


def test_a_running_job_is_read_on_and_older_segments_may_go(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "SEGMENT_BYTES", SMALL)
    monkeypatch.setattr(journal, "EVENT_SHARE", 0)
    recorded, _, life = live(tmp_path, 3, Mode.MANUAL, 3)
    replay = Replay(tmp_path)
    replay.read_on()
    assert replay.first_s == 0.0
    before_s = replay.last_s
    for _ in range(60):
        for event in life.second():
            outcome(recorded, event)
    replay.read_on()
    assert replay.last_s == life.at_s > before_s
    assert segments(tmp_path)[0].number > 0
    with pytest.raises(NotFoundError, match="no longer reaches back"):
        replay.at(1.0)
    late = Replay(tmp_path)
    late.read_on()
    assert late.first_s > 0
    assert "deleted" in late.at(late.last_s).missing
    assert of_view(late.at(late.last_s)) == of_view(recorded.controller.view())
    with pytest.raises(NotFoundError):
        late.at(late.first_s - 1)
    recorded.close()


@pytest.mark.release
def test_what_is_kept_does_not_grow_with_the_job(folders, monkeypatch):
    monkeypatch.setattr(time_travel, "FIRST_EVERY", 2)
    monkeypatch.setattr(time_travel, "MOST_HAPPENINGS", 5)
    folder = folders()
    recorded, _, life = live(folder, 1, Mode.AUTO, 60)
    end(recorded, life)
    replay = Replay(folder)
    replay.read_on()
    assert len(replay._kept) <= MOST_STATES + 1
    assert len(replay.happenings) == 5
    assert replay.n_left_out > 0
    assert replay.at(30.0).at_s == 30.0


@pytest.mark.more
def test_happenings_name_proposals_decisions_plans_and_kills(folders):
    folder = folders()
    recorded, _, life = live(folder, 5, Mode.AUTO, 120)
    end(recorded, life)
    replay = Replay(folder)
    replay.read_on()
    kinds = {each.kind for each in replay.happenings}
    assert {HappeningKind.PHASE, HappeningKind.PLAN, HappeningKind.DECISION, HappeningKind.PROPOSAL} <= kinds
    assert list(replay.happenings) == sorted(replay.happenings, key=lambda each: each.at_s)
    assert replay.run == "long@0.000"


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=3000))
def test_speeds_are_means_of_spans_in_a_bounded_number(values):
    speeds = Speeds()
    for i, value in enumerate(values):
        speeds.add(float(i), value)
    assert len(speeds.points) < MOST_SPEEDS
    assert all(min(values) - 1e-6 <= v <= max(values) + 1e-6 for _, v in speeds.points)
    assert [t for t, _ in speeds.points] == sorted(t for t, _ in speeds.points)
    assert speeds.until(-1.0) == ()


def test_a_folder_without_a_journal_is_no_past(tmp_path):
    with pytest.raises(NotFoundError, match="no journal"):
        Replay(tmp_path)
