"""The list of all jobs as data: words, order, filters, totals, and the law of its events."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from support.dashboard.team_clusters import job_snapshot
from support.jobs import builders as b

from dlrover_nb.core.structs.decisions.commands import Action, AuditRow, ChainedRow, Entry, Stage
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.views.summary import UNKNOWN, summarize
from dlrover_nb.dashboard.jobs_board.boards import KEPT_S, SHOWN_S, LastSeen
from dlrover_nb.dashboard.jobs_board.deltas import EMPTY, MOST_NEWS, board_of, delta
from dlrover_nb.dashboard.jobs_board.filters import MOST_DRAWN, Wanted, wanted_from, wanted_of
from dlrover_nb.dashboard.jobs_board.rows import (
    BELOW,
    COLUMNS,
    IN_LINE,
    KEYS,
    USUAL,
    ordered,
    row_of,
    sort_value,
)
from dlrover_nb.dashboard.jobs_board.totals import decision_costs, decisions_sum, per_person
from dlrover_nb.widgets import units
from dlrover_nb.widgets.rows.job_totals import cost_rate, totals

JOB = summarize(job_snapshot("ads", owner="ada"))
QUIET = replace(JOB, open_proposal=None, memory_needs=(), outlook=replace(JOB.outlook, proposed=None))

jobs = st.builds(
    lambda name, phase, rate, owner, proposal, done: replace(
        JOB, name=name, phase=phase, samples_per_s=rate, owner=owner, open_proposal=proposal, done=done
    ),
    st.text("abc-019", min_size=1, max_size=5),
    st.sampled_from(list(JobPhase)),
    st.floats(0, 1e6),
    st.sampled_from(["", "ada", "eve"]),
    st.sampled_from([None, "p1", "p2"]),
    st.floats(0, 1),
)
boards = st.lists(jobs, max_size=6, unique_by=lambda job: job.name).map(lambda told: board_of(told, None))


def applied(shown, told):
    """Apply an event as `static/jobs.js` does."""
    rows = {name: dict(cells) for name, cells in shown["rows"].items() if name not in told.get("g", ())}
    for name, cells in told.get("c", {}).items():
        rows[name] = rows.get(name, {}) | cells
    return {
        "rows": rows,
        "totals": shown["totals"] | told.get("t", {}),
        "people": told.get("p", shown["people"]),
        "error": told.get("e", shown["error"]),
    }


def as_shown(board):
    people = [person.cells for person in board.people]
    rows = {name: row.wire for name, row in board.rows.items()}
    return {"rows": rows, "totals": board.totals, "people": people, "error": board.error}


@given(st.lists(boards, min_size=1, max_size=4))
def test_a_browser_that_applies_each_event_shows_the_newest_board(told):
    shown, before = as_shown(EMPTY), EMPTY
    for board in told:
        shown, before = applied(shown, delta(before, board)), board
        assert shown == as_shown(board)


@given(boards)
def test_where_nothing_has_changed_an_event_says_nothing(board):
    assert delta(board, board) == {}


@given(boards, boards, boards)
def test_a_slow_browser_gets_in_one_event_what_others_get_in_two(first, missed, last):
    assert applied(as_shown(first), delta(first, last)) == applied(
        applied(as_shown(first), delta(first, missed)), delta(missed, last)
    )


def test_only_changed_cells_travel():
    faster = replace(QUIET, samples_per_s=QUIET.samples_per_s * 1.001)
    told = delta(board_of([QUIET], None), board_of([faster], None))
    assert set(told["c"]["ads"]) == {"rate"}


def test_a_rounded_time_travels_with_its_exact_one_and_again_only_when_its_words_change():
    began_s = QUIET.started_at_s
    row = row_of(QUIET, now_s=began_s + 200.0)
    assert row.wire["started"] == ["3 min ago", began_s, units.clock(began_s)]
    assert row_of(QUIET, now_s=began_s + 201.0).changes(row) == {}
    assert set(row_of(QUIET, now_s=began_s + 250.0).changes(row)) == {"started"}


def test_new_proposals_and_failed_jobs_are_news_and_many_are_counted():
    failed = replace(QUIET, phase=JobPhase.FAILED, message="no memory\nTraceback")
    told = delta(board_of([QUIET], None), board_of([JOB, replace(failed, name="eve")], None))
    assert [words.partition(":")[0] for words in told["w"]] == [
        "Job ads has a new proposal",
        "Job eve has failed",
    ]
    many = [replace(JOB, name=f"job-{i}") for i in range(MOST_NEWS + 3)]
    assert delta(board_of([QUIET], None), board_of(many, None))["w"][-1] == "and 3 more"
    assert "w" not in delta(EMPTY, board_of(many, None)), "whoever opens the page sees them anyway"


def test_what_needs_somebody_stands_first_and_what_is_not_known_last():
    failed = replace(QUIET, name="b", phase=JobPhase.FAILED)
    ended = replace(QUIET, name="a", phase=JobPhase.SUCCEEDED)
    rows = [row_of(job) for job in (ended, failed, replace(QUIET, name="c"), JOB)]
    assert [row.name for row in ordered(rows, "needs", is_down=False)] == ["ads", "c", "b", "a"]
    for is_down in (False, True):
        assert {row.name for row in ordered(rows, "rate", is_down=is_down)[-2:]} == {"a", "b"}


def test_an_end_that_is_not_known_stands_last_though_its_chance_is_known(words):
    due = replace(QUIET, left_s=None, outlook=replace(QUIET.outlook, in_time=0.9))
    row = row_of(due)
    assert row.cell("ends").text == words
    assert sort_value(row, "ends") is None


def test_every_column_has_a_width_but_the_second_line_of_a_row():
    assert [column.key for column in COLUMNS if not column.width] == [BELOW.key] == ["sentence"]
    assert set(USUAL) < {column.key for column in IN_LINE}


@given(st.lists(jobs, max_size=8, unique_by=lambda job: job.name), st.sampled_from([*KEYS]), st.booleans())
def test_every_column_can_be_sorted_both_ways_and_loses_no_row(told, key, is_down):
    rows = [row_of(job) for job in told]
    shown = ordered(rows, key, is_down=is_down)
    assert sorted(row.name for row in shown) == sorted(row.name for row in rows)
    values = [v for row in shown if isinstance(v := sort_value(row, key), float)]
    assert values == sorted(values, reverse=is_down)


wishes = st.builds(
    Wanted, st.text(max_size=20), st.sampled_from(["", *map(str, JobPhase)]), st.text(max_size=9), st.booleans(),
    st.sampled_from([*KEYS]), st.booleans(), st.booleans(),
    st.sets(st.sampled_from([column.key for column in IN_LINE])).map(
        lambda keys: tuple(column.key for column in IN_LINE if column.key in keys | {"job"})
    ),
    st.text(max_size=9),
)  # fmt: skip


@given(wishes)
def test_the_state_of_the_page_is_whole_in_its_address(wanted):
    assert wanted_of(wanted.query) == wanted
    assert wanted_from(wanted.address) == wanted


def test_a_filter_keeps_what_matches_all_of_it():
    row = row_of(JOB)
    assert Wanted().shows(row)
    assert Wanted("ADS improve", "training", "ada", needs=True).shows(row)
    for other in (Wanted("eve"), Wanted(phase="failed"), Wanted(owner="eve")):
        assert not other.shows(row)
    assert not Wanted(needs=True).shows(row_of(replace(QUIET, outlook=UNKNOWN)))


def test_a_tag_is_a_filter_a_word_of_the_search_and_no_part_of_another_tag():
    row = row_of(replace(QUIET, tags=("nightly", "ads/ctr")))
    assert row.cell("tags").text == "nightly, ads/ctr"
    assert Wanted(tag="nightly").shows(row)
    assert Wanted("ads/ctr").shows(row)
    assert not Wanted(tag="night").shows(row)
    assert row_of(QUIET).cell("tags").text == "-"


def test_of_very_many_the_first_are_drawn_and_all_are_counted():
    rows = ordered(
        (row_of(replace(QUIET, name=f"job-{i}")) for i in range(MOST_DRAWN + 5)), "job", is_down=False
    )
    drawn, n_match = Wanted().drawn(rows)
    assert (len(drawn), n_match) == (MOST_DRAWN, MOST_DRAWN + 5)
    assert f"job-{MOST_DRAWN}" not in drawn
    assert len(Wanted(is_whole=True).drawn(rows)[0]) == MOST_DRAWN + 5


def test_parameters_that_mean_nothing_are_left_out():
    assert wanted_of({"sort": "<script>", "dir": "sideways", "needs": "yes", "cols": "evil,"}) == Wanted()


@given(st.lists(st.tuples(st.floats(0.1, 200), st.sets(st.sampled_from("abc"))), min_size=1, max_size=8))
def test_a_job_that_was_heard_stays_until_its_master_was_silent_for_long(steps):
    seen, last, now_s = LastSeen(), {}, 0.0
    for passed_s, names in steps:
        now_s += passed_s
        last |= dict.fromkeys(names, now_s)
        shown, silent = seen.with_silent(tuple(replace(QUIET, name=name) for name in sorted(names)), now_s)
        last = {name: at_s for name, at_s in last.items() if now_s - at_s <= KEPT_S}
        assert {job.name for job in shown} == set(last)
        assert silent == {name: now_s - at_s for name, at_s in last.items() if now_s - at_s > SHOWN_S}


def test_a_job_that_is_not_there_any_more_is_forgotten_at_once():
    seen = LastSeen()
    seen.with_silent((QUIET,), 0.0)
    seen.forget(QUIET.name)
    seen.forget("unknown")
    assert seen.with_silent((), 1.0) == ((), {})


def test_a_job_that_has_ended_is_not_waited_for():
    seen = LastSeen()
    seen.with_silent((replace(QUIET, phase=JobPhase.SUCCEEDED),), 0.0)
    assert seen.with_silent((), 1.0) == ((), {})


def test_a_silent_master_is_said_in_words_and_its_last_speed_is_no_news(words):
    row = row_of(QUIET, silent_s=12.0)
    assert row.cell("state").text == words
    assert row.needs == ("master silent",)
    assert row.cell("rate").text == "-"


def test_an_unknown_price_is_told_and_never_free():
    unknown = replace(QUIET, outlook=replace(QUIET.outlook, cost_per_hour=None))
    assert row_of(unknown).cell("cost").text == "price unknown"
    assert cost_rate([unknown, QUIET]).endswith("1 job of unknown price")
    assert "assumed" in cost_rate([QUIET])
    assert "assumed" not in row_of(QUIET).cell("cost").text, "the totals say it for all rows"
    assert cost_rate([]) == "nothing runs"


def test_the_totals_and_the_people_add_up_and_leave_out_what_has_ended(words):
    told = [QUIET, replace(QUIET, name="b", owner="eve"), replace(QUIET, name="c", phase=JobPhase.STOPPED)]
    people = per_person(told)
    assert [(person.owner, person.n_job) for person in people] == [("ada", 1), ("eve", 1)]
    assert totals(told, b.snapshot().capacity)["jobs"] == "2 training, 1 stopped"
    assert totals(told, b.snapshot().capacity)["cores"] == words


def chained(seq, **fields):
    row = AuditRow(
        float(seq),
        "ada",
        Entry.DASHBOARD,
        Action.ACCEPT,
        "ads",
        Stage.DONE,
        subject="p2",
        currency="USD",
        **fields,
    )
    return ChainedRow(seq, row, "")


def test_the_cost_of_decisions_is_of_plans_that_were_changed_and_known_prices(words):
    rows = [
        chained(1, plan_before="a", plan_after="b", cost_per_hour=3.0, cost_before_per_hour=1.0),
        chained(2, plan_before="b", plan_after="b", cost_per_hour=3.0, cost_before_per_hour=3.0),
        chained(3, plan_before="b", plan_after="c", cost_per_hour=2.5, cost_before_per_hour=3.0),
        chained(4, plan_before="c", plan_after="d"),
    ]
    refused = replace(rows[0], row=replace(rows[0].row, stage=Stage.REFUSED))
    costs = decision_costs([*rows, refused])
    assert [cost.change_per_hour for cost in costs] == [None, -0.5, 2.0]
    assert decisions_sum(costs) == words
    euro = replace(costs[1], currency="EUR")
    assert decisions_sum([*costs, euro]).startswith("4 decisions: -0.5 EUR/h, +1.5 USD/h")


def test_a_simulated_job_is_called_so_and_found_by_its_phase_all_the_same():
    row = row_of(replace(QUIET, simulated=True))
    assert row.cell("state").text.endswith("(simulated)")
    assert Wanted("simulated", str(QUIET.phase)).shows(row)


ACTION = summarize(b.snapshot(proposals=(), mitigations=(b.mitigation(),)))


def test_an_action_that_waits_marks_its_job_as_one_that_waits(words):
    row = row_of(ACTION)
    assert row.needs[0] == "answer m1"
    assert row.cell("proposal").text == words
    assert "1 action" in totals([ACTION], None)["waiting for you"]
    assert "action" not in totals([JOB], None)["waiting for you"]
    both = summarize(b.snapshot(mitigations=(b.mitigation(),)))
    assert row_of(both).needs[0] == "answer p2 and m1"
    assert row_of(both).cell("proposal").text.count("; ") == 1


def test_an_action_is_news_also_beside_a_proposal_that_is_known(words):
    before = summarize(b.snapshot())
    after = replace(before, outlook=replace(before.outlook, mitigation=ACTION.outlook.mitigation))
    told = delta(board_of([before], None), board_of([after], None))["w"]
    assert told == [words]
    assert "w" not in delta(board_of([after], None), board_of([before], None)), "an answer is no news"
