"""The line of a job in a list: drawn from its snapshot, and understood from masters of other releases."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.jobs import builders as b

from dlrover_nb.core.codec import from_msgpack, to_msgpack
from dlrover_nb.core.pricing import cost_per_hour
from dlrover_nb.core.structs.decisions.decisions import ProposalKind, ProposalStatus
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.snapshot import MemoryLine
from dlrover_nb.core.structs.views.summary import UNKNOWN, JobSummary, summarize

SNAPSHOT = b.snapshot()


def test_the_outlook_tells_what_the_snapshot_tells():
    told = summarize(SNAPSHOT).outlook
    opened = SNAPSHOT.open_proposal
    assert told.mode is SNAPSHOT.mode
    assert told.predicted == SNAPSHOT.front.current.prediction
    assert told.cost_per_hour == cost_per_hour(SNAPSHOT.running, SNAPSHOT.spec.prices)
    assert (told.currency, told.prices_assumed) == ("USD", True)
    assert told.full_in_s == 103.0
    assert told.memory_left == pytest.approx(1 - 419.1 / 512)
    assert (told.proposed.kind, told.proposed.plan) == (ProposalKind.IMPROVE, opened.candidate.plan)
    assert told.proposed.samples_per_s > told.proposed.before_samples_per_s


def test_a_prediction_for_another_plan_than_the_one_that_runs_is_not_told():
    assert summarize(replace(SNAPSHOT, running=b.BETTER_PLAN)).outlook.predicted is None


def test_what_is_not_known_stays_unknown():
    bare = replace(
        SNAPSHOT, front=None, memory=(), proposals=(b.proposal(status=ProposalStatus.REJECTED),),
        spec=replace(SNAPSHOT.spec, prices=PriceTable(cpu_hour=None)),
    )  # fmt: skip
    told = summarize(bare).outlook
    assert (told.predicted, told.memory_left, told.full_in_s) == (None, None, None)
    assert (told.proposed, told.cost_per_hour, told.in_time) == (None, None, None)


@given(
    st.lists(st.tuples(st.floats(1, 900), st.integers(64, 900), st.none() | st.floats(0, 1e6)), min_size=1)
)
def test_the_headroom_is_that_of_the_fullest_role_and_the_time_that_of_the_first_to_be_full(roles):
    lines = tuple(MemoryLine(Role.PS, limit, now, 0.0, None, full) for now, limit, full in roles)
    told = summarize(replace(SNAPSHOT, memory=lines)).outlook
    assert all(told.memory_left <= 1 - now / limit for now, limit, _ in roles)
    known = [full for *_, full in roles if full is not None]
    assert told.full_in_s == (min(known) if known else None)


def test_the_answer_of_an_older_master_is_understood():
    fields = msgspec.to_builtins(summarize(SNAPSHOT))
    del fields["outlook"]
    old = from_msgpack(msgspec.msgpack.encode(fields), JobSummary)
    assert old.outlook == UNKNOWN
    assert old == replace(summarize(SNAPSHOT), outlook=UNKNOWN)


def test_a_summary_is_the_same_after_the_wire():
    assert from_msgpack(to_msgpack(summarize(SNAPSHOT)), JobSummary) == summarize(SNAPSHOT)
