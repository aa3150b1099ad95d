"""The throughput of a past moment: all of it, or the last span before the moment."""

from __future__ import annotations

import pytest
from support.history.history_records import SPEC
from support.jobs import builders as b

from dlrover_nb.core.structs.decisions.decisions import Decision, ProposalStatus, Verdict
from dlrover_nb.core.structs.views.moment import Moment, Source
from dlrover_nb.widgets.past.moment import moment_view, moment_words, speeds_chart

START_S = 1_790_000_000.0
SPEEDS = tuple((START_S + t, float(t)) for t in range(1000))


def rows(at_s, span_s):
    speeds = tuple(row for row in SPEEDS if row[0] <= at_s)
    return speeds_chart(
        Moment(at_s, Source.JOURNAL, SPEC.plan, speeds=speeds), START_S, span_s
    ).data_table.rows


@pytest.mark.parametrize(("span_s", "least"), [(None, "0"), (600.0, "300"), (3600.0, "0")])
def test_the_span_before_the_moment_is_drawn_alone(span_s, least):
    found = rows(START_S + 900, span_s)
    assert found[0][2] == least
    assert found[-1][3] == "900"


def test_a_span_in_which_nothing_was_measured_is_an_empty_chart():
    moment = Moment(START_S + 9000, Source.DATABASE, SPEC.plan, speeds=SPEEDS)
    chart = speeds_chart(moment, START_S, 600.0)
    assert chart.data_table.rows == ()
    assert "<svg" in chart.svg


def test_a_moment_tells_who_was_slow_what_waited_and_what_was_done():
    moment = Moment(
        START_S + 900,
        Source.JOURNAL,
        SPEC.plan,
        stragglers=(b.straggler(),),
        mitigations=(b.mitigation("m1", status=ProposalStatus.REJECTED), b.mitigation("m2")),
        decisions=(Decision(Verdict.REJECT, "ada", START_S + 800, "m1", id="d1"),),
    )
    text = moment_view(moment, START_S, "clicks").text()
    assert "worker-1 is slow: it works 24.0 ms on a step" in text
    assert "Action m2: restart worker-1 waited." in text
    assert "rejected" in text
    assert "m2 (restart worker-1) waits" in moment_words(moment, START_S, None)
    quiet = moment_view(Moment(START_S + 900, Source.JOURNAL, SPEC.plan), START_S, "clicks").text()
    assert "Stragglers then" not in quiet
