from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each
from support.jobs import builders as b

from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.core.structs.decisions.query_answers import Weighed
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.widgets.jobs.review_card import Press, read_press
from dlrover_nb.widgets.jobs.whatif import (
    Axis,
    Consequence,
    button_label,
    changed,
    consequence_blocks,
    consequence_html,
    ladders,
    memory_rungs,
    plan_words,
    rest,
    value,
)
from dlrover_nb.widgets.theme import WARN

roles = st.builds(
    RolePlan, st.integers(1, 9), st.floats(0.25, 8).map(lambda c: round(c, 2)), st.integers(64, 9999)
)
plans = st.builds(ResourcePlan, roles, roles)


@settings(deadline=None)
@given(plans)
def test_sliders_stand_on_the_plan_wherever_it_lies(plan):
    for ladder in ladders(b.snapshot(), plan):
        assert ladder.values[ladder.at] == value(plan, ladder.axis)
        assert [*ladder.values] == sorted(set(ladder.values))
        assert len(ladder.words) == len(ladder.values)


@settings(deadline=None)
@given(plans, st.sampled_from(Axis), st.integers(0, 99))
def test_a_move_changes_one_number_and_nothing_else(plan, axis, at):
    values = next(ladder for ladder in ladders(b.snapshot(), plan) if ladder.axis is axis).values
    number = values[at % len(values)]
    moved = changed(plan, axis, number)
    assert value(moved, axis) == number
    assert all(value(moved, other) == value(plan, other) for other in Axis if other is not axis)


def test_ladders_keep_to_the_bounds_of_the_job():
    shown = b.snapshot()
    bounds = PlanBounds(4, 2, worker_cpus=(0.25, 0.5, 0.75, 1.0))
    shown = replace(shown, spec=replace(shown.spec, bounds=bounds))
    by_axis = {ladder.axis: ladder.values for ladder in ladders(shown, b.NOW_PLAN)}
    assert by_axis[Axis.WORKERS] == (1, 2, 3, 4)
    assert by_axis[Axis.PS] == (1, 2)
    assert by_axis[Axis.WORKER_CPU] == (0.25, 0.5, 0.75, 1.0)
    assert max(by_axis[Axis.PS_CPU]) == max(shape.cpu for shape in shown.capacity.shapes)  # not named
    assert max(by_axis[Axis.PS_MEMORY]) == 8192  # the largest machine


def test_a_pinned_number_cannot_be_moved():
    snapshot = b.snapshot(pins=Pins(ps=1), proposals=())
    pinned = next(ladder for ladder in ladders(snapshot, b.NOW_PLAN) if ladder.axis is Axis.PS)
    assert pinned.is_fixed
    assert pinned.title == "PS (pinned)"


def test_memory_moves_in_round_steps():
    assert memory_rungs(2048) == (256, 384, 512, 768, 1024, 1536, 2048)


def test_untouched_sliders_rest_on_the_proposal_else_on_the_job():
    assert rest(b.snapshot()) == b.BETTER_PLAN
    closed = b.snapshot(proposals=(b.proposal("p2", status=ProposalStatus.REJECTED),))
    assert rest(closed) == b.NOW_PLAN


@settings(deadline=None)
@given(plans)
def test_what_the_button_says_is_what_a_press_means(plan):
    words = plan_words(plan, b.NOW_PLAN)
    assert read_press(button_label(b.snapshot(), plan)) == Press("override", "p2", words)
    assert read_press(button_label(b.snapshot(proposals=()), plan)) == Press("scale", "", words)


@settings(deadline=None)
@given(plans, plans)
def test_plans_that_differ_are_named_apart(one, other):
    assert (plan_words(one, b.NOW_PLAN) == plan_words(other, b.NOW_PLAN)) is (one == other)


@for_each(
    ("label", "press"),
    [
        ("Accept p12", Press("accept", "p12", "")),
        ("Undo d3", Press("undo", "d3", "")),
        ("Cancel d3", Press("cancel", "d3", "")),
        ("", Press("", "", "")),
        ("<script>", Press("", "", "")),
    ],
)
def test_labels_are_read_as_they_stand(label, press):
    assert read_press(label) == press


def told(plan, **changes):
    candidate = b.candidate(plan)
    return Consequence(plan, Weighed(plan, replace(candidate, **changes)))


def test_the_consequence_tells_throughput_band_cost_finish_and_transition(words, lines_of):
    html = consequence_html(told(b.BETTER_PLAN), b.snapshot())
    assert "No similar plan" not in html
    assert lines_of(html) == words


def test_an_extrapolated_prediction_is_worded_and_red(words, lines_of):
    plan = b.plan(4, 2)
    wild = told(plan, prediction=b.prediction(plan, width=0.5, extrapolates=True))
    html = consequence_html(wild, b.snapshot())
    assert [
        line for line in lines_of(html).splitlines() if "xtrapolated" in line or "similar plan" in line
    ] == words
    assert f"color:{WARN}" in html


def test_a_refusal_is_told_and_nothing_can_be_sent():
    refused = Consequence(b.BETTER_PLAN, Weighed(b.BETTER_PLAN, None, "no room: " + b.HOSTILE))
    assert not refused.is_possible
    html = consequence_html(refused, b.snapshot())
    assert "Not possible: no room" in html
    assert "<script" not in html


def test_before_anything_was_measured_the_sliders_say_so(words):
    blocks = consequence_blocks(
        Consequence(b.BETTER_PLAN, Weighed(b.BETTER_PLAN, None)), b.snapshot(front=None)
    )
    assert blocks[0].text == words


def test_the_plan_of_the_job_is_no_refusal(words, lines_of):
    now = Consequence(b.NOW_PLAN, Weighed(b.NOW_PLAN, b.candidate(b.NOW_PLAN), "plan must differ from now"))
    html = consequence_html(now, b.snapshot())
    assert lines_of(html).splitlines()[0] == words
    assert "Not possible" not in html
