"""The first screen of a live view: one sentence with its buttons, one chart, one line of facts; the rest on pages."""

from __future__ import annotations

from dataclasses import replace

import panel as pn
import pytest
from bokeh.models import GlyphRenderer, Plot
from support.jobs import builders as b
from support.jobs.masters import Master
from support.jobs.played_page import PlayedPage
from support.waiting import until

from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.structs.decisions.decisions import Decision, ProposalStatus, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.training.shards import Purpose, QuarantinedShard, ShardAction
from dlrover_nb.core.structs.views.snapshot import Evaluation, EvaluationRound
from dlrover_nb.widgets import units
from dlrover_nb.widgets.charts.per_worker.age_rows import NO_AGES
from dlrover_nb.widgets.jobs.review_card import Answer
from dlrover_nb.widgets.live.job_view_model import JobViewModel
from dlrover_nb.widgets.theme import UNSEEN


def page_of(master: Master) -> PlayedPage:
    """Return the page of a job whose picture is never stale, on however slow a machine."""
    handle = JobHandle("quick-start", master, user="ada")
    return PlayedPage(JobViewModel(handle, lambda: None, monotonic=lambda: 0.0))


@pytest.fixture
def master() -> Master:
    return Master()


@pytest.fixture
def page(master: Master) -> PlayedPage:
    return page_of(master)


@pytest.fixture
def screen(page: PlayedPage):
    return page.screen


def shown_plots(part) -> list[Plot]:
    """Return the figures that are visible within a part of a layout."""
    if not getattr(part, "visible", True):
        return []
    if isinstance(part, pn.pane.Bokeh):
        return [each for each in part.object.select({"type": Plot}) if each.visible]
    return [plot for child in getattr(part, "objects", ()) for plot in shown_plots(child)]


def test_one_chart_stands_on_the_first_screen_and_a_page_adds_its_own(page, screen):
    page.redraw()
    throughput = screen.chart_grid.figures["throughput"].root
    assert shown_plots(screen.layout) == [throughput]
    page.open("Memory")
    page.draw()
    assert len(shown_plots(screen.layout)) == 2
    page.open("Plans")
    page.draw()
    assert len(shown_plots(screen.layout)) == 3


def test_figures_of_a_page_are_made_when_it_is_opened_and_stay(page, screen):
    """Each figure of a document makes all of it slower, shown or not."""
    page.redraw()
    assert plots_of(screen) == [screen.chart_grid.figures["throughput"].root]
    page.open("Rows")
    page.draw()
    assert {*screen.chart_grid.figures} == {"throughput", "shards", "rounds"}
    before = plots_of(screen)
    page.open("Memory")
    page.draw()
    page.open("Rows")
    page.draw()
    assert [plot for plot in before if plot not in plots_of(screen)] == []
    assert {*screen.chart_grid.figures} == {"throughput", "shards", "rounds", "memory"}


def plots_of(screen) -> list[Plot]:
    """Return all figures of a screen's document, shown or not."""
    return [*screen.layout.get_root().select({"type": Plot})]


def test_glyphs_of_each_chart_are_there_when_its_page_gets_it(page, screen, monkeypatch):
    """A browser takes seconds for glyphs that come one by one."""
    counts, open_page = dict[str, int](), screen.tabs.open

    def open_and_count(name, parts) -> None:
        open_page(name, parts)
        counts[name] = n_glyph(screen)

    monkeypatch.setattr(screen.tabs, "open", open_and_count)
    page.redraw()
    for name in screen.tabs.names:
        page.open(name)
        page.draw()
        page.redraw()
        later = n_glyph(screen) - counts[name]
        assert later <= (name == "Plans"), "the sample of the cross in a legend comes with it"


def n_glyph(screen) -> int:
    return len([*screen.layout.get_root().select({"type": GlyphRenderer})])


def test_a_page_is_opened_once_its_browser_has_drawn_the_view(page, screen, monkeypatch):
    """Until then Panel drops new parts, and every later change of them names what the browser does not have."""
    monkeypatch.setattr("dlrover_nb.widgets.live.browser.render_target._is_ready", lambda _doc: False)
    page.open("Memory")
    page.draw()
    assert (screen.tabs.to_open, screen.tabs.page("Memory").visible) == ("Memory", False)
    monkeypatch.undo()
    page.draw()
    assert (screen.tabs.to_open, screen.tabs.page("Memory").visible) == ("", True)


def test_a_page_that_is_opened_late_shows_the_present_state_at_once(master, page, screen):
    page.redraw()
    nodes = ("worker-0", "ps-0", "worker-1")
    master.chunks.append(b.series(303, nodes=nodes, start=300, cursor=master.chunks[-1].cursor + 1))
    page.redraw()
    page.open("Memory")
    page.draw()
    assert "worker-1" in {each.name for each in screen.chart_grid.figures["memory"].root.renderers}


def test_a_further_chart_of_a_page_takes_no_room_until_it_has_data(master, page, screen):
    page.open("Rows")
    page.draw()
    rounds = screen.chart_grid.figures["rounds"].root
    assert not rounds.visible
    quality = Evaluation(0.93, 0.14, 20_000)
    master.state = b.snapshot(rounds=tuple(EvaluationRound(n, b.START_S + n, quality) for n in (1, 2)))
    page.redraw()
    assert rounds.visible


def test_the_pages_stand_in_the_order_of_what_is_asked(screen):
    assert screen.tabs.model.labels == [
        "Why?", "Plans", "Memory", "Nodes", "Rows", "Staleness", "Scores", "Logs", "Numbers", "Run again",
    ]  # fmt: skip
    assert screen.tabs.chosen == ""


def test_what_else_one_could_do_opens_the_charts_that_its_cross_stands_on(page, screen):
    page.click("Something else…")
    page.draw()
    assert screen.tabs.chosen == "Plans"
    page.open("Memory")
    page.click("Close")
    page.click("Something else…")
    assert screen.tabs.chosen == "Memory", "what a user opened stays"


def test_all_charts_over_time_share_one_range_of_time_whenever_their_page_is_opened(page, screen):
    figures = screen.chart_grid.figures
    times = figures["throughput"].root.x_range
    times.update(start=20.0, end=40.0)  # as a browser sets it, where a user zooms
    for name in screen.chart_grid.pages:
        page.open(name)
        page.draw()
    names = ("memory", "workers", "breakdown", "shards", "staleness", "distance", "batches")
    over_time = {name: figures[name].panels[-1].root for name in names}
    over_time["stragglers"] = figures["stragglers"].panels[0].root
    for name, figure in over_time.items():
        assert figure.x_range is times, name
    assert (times.start, times.end) == (20.0, 40.0)
    assert figures["front"].root.x_range is not times


def test_the_page_of_staleness_compares_workers_and_says_why_ages_are_not_known(page, screen):
    page.open("Staleness")
    page.draw()
    figures = screen.chart_grid.figures
    names = ("staleness", "distance", "batches", "consumed")
    assert all(figures[name].root.visible for name in names)
    assert NO_AGES not in page.text
    page = page_of(Master(series=replace(b.series(), ages={})))
    page.open("Staleness")
    page.draw()
    figures = page.screen.chart_grid.figures
    assert [figures[name].root.visible for name in names] == [False, False, True, True]
    assert NO_AGES in page.text


def test_why_is_asked_for_on_request_and_again_for_another_proposal(master, page):
    page.draw()
    assert not master.explained
    page.open("Why?")
    until(lambda: page.draw() or "Why proposal p2" in page.text)
    page.redraw()
    assert master.explained == ["p2"]
    master.state = b.snapshot(
        proposals=(b.proposal("p2", status=ProposalStatus.SUPERSEDED), b.proposal("p3"))
    )
    until(lambda: page.redraw() or "Why proposal p3" in page.text)
    assert master.explained == ["p2", "p3"]


def test_why_that_could_not_be_answered_is_asked_again_with_the_next_picture(master, page):
    master.reachable = False
    page.open("Why?")
    until(lambda: page.draw() or "does not answer" in page.text)
    page.draw()
    master.reachable = True
    until(lambda: page.redraw() or "Why proposal p2" in page.text)


def test_logs_are_read_while_their_page_is_open(page):
    page.open("Logs")
    until(lambda: page.draw() or "worker-0 is up" in page.text)


def visible_buttons(page) -> list[str]:
    """Return the labels of all buttons on the first screen, in order."""
    row, *_ = (row for row in page.screen.layout.select(pn.Row))
    buttons = [getattr(part, "object", part) for part in row]
    return [each.label for each in buttons if each.visible]


FAR_OFF = replace(b.snapshot().outcomes[0], measured_samples_per_s=2 * b.speed(b.NOW_PLAN))
QUESTION = QuarantinedShard(Purpose.TRAIN, 7, 0, 700, 800, 12, ("worker-0", "worker-1", "worker-0"))
UNDO = Decision(Verdict.SCALE, "", 0.0, plan=b.plan(1, 1, 0.25), undoes="d3")


@pytest.mark.parametrize(
    ("snapshot", "labels"),
    [
        (b.snapshot(), ["Do it (p2)", "Not now (p2)", "Something else…"]),
        (b.snapshot(undo=UNDO), ["Do it (p2)", "Not now (p2)", "Something else…"]),
        (b.snapshot(proposals=(), undo=UNDO), ["Something else…", "Undo d3"]),
        (b.snapshot(proposals=(), undo=UNDO, outcomes=(FAR_OFF,)), ["Something else…", "Undo d3", "Why?"]),
        (b.snapshot(proposals=(), undo=UNDO, under_way="d3"), ["Something else…", "Cancel d3"]),
        (
            b.snapshot(proposals=(), quarantined=(QUESTION,)),
            ["Try again (shard 7)", "Skip it (shard 7)", "Something else…"],
        ),
        (b.snapshot(proposals=(), phase=JobPhase.SUCCEEDED), ["Run again…"]),
        (b.snapshot(proposals=(), phase=JobPhase.STOPPED), ["Go on…"]),
        (b.snapshot(proposals=(), phase=JobPhase.FAILED), ["Go on…", "Logs"]),
    ],
)
def test_three_buttons_at_most_answer_the_sentence(snapshot, labels):
    page = page_of(Master(snapshot))
    page.redraw()
    assert visible_buttons(page) == labels


def test_undo_stands_with_the_last_change_while_the_sentence_is_a_proposal(master, page, screen):
    master.state = b.snapshot(undo=UNDO)
    page.redraw()
    assert (screen.buttons.undo.visible, screen.buttons.undo_below.visible) == (False, True)
    assert screen.buttons.undo_below.label == "Undo d3"
    assert "Last change: <strong>to 1w x 0.5 + 1p x 0.25: as predicted (-4 %), paused 2.1 s" in page.text


@pytest.mark.parametrize(
    ("label", "action"), [("Try again", ShardAction.RETRY), ("Skip it", ShardAction.SKIP)]
)
def test_rows_in_question_are_decided_with_the_reason(master, page, screen, label, action):
    master.state = b.snapshot(proposals=(), quarantined=(QUESTION,))
    page.redraw()
    page.field("Reason").value = "known bad"
    page.press(f"{label} (shard 7)")
    until(lambda: page.view_model.state().request.answer is Answer.TAKEN)
    page.redraw()
    (choice,) = master.chosen
    assert (choice.shard, choice.action, choice.why, choice.by) == (7, action, "known bad", "ada")
    assert "Received: " in page.status
    assert not screen.buttons.skip.visible


def test_that_a_proposal_waits_is_said_to_screen_readers_and_what_a_press_did_to_all(page):
    page.redraw()
    assert "p2 (improvement) waits" in page.status
    assert UNSEEN in page.status
    page.press("Reject p2")
    until(lambda: page.redraw() or "rejected p2" in page.status)
    assert UNSEEN not in page.status


def test_a_job_that_ended_early_says_how_to_go_on_with_it_and_how_to_run_it_again():
    page = page_of(Master(b.snapshot(proposals=(), phase=JobPhase.FAILED)))
    page.click("Go on…")
    page.redraw()
    assert "start_from.source=quick-start" in page.text
    assert "start_from.rows=true" in page.text
    assert page.text.index("Go on from its last checkpoint") < page.text.index("Run it again")
    done = page_of(Master(b.snapshot(proposals=(), phase=JobPhase.SUCCEEDED)))
    done.click("Run again…")
    done.redraw()
    assert "%dlrover submit quick-start-2" in done.text
    assert "start_from" not in done.text


def test_the_button_for_logs_opens_their_page():
    page = page_of(Master(b.snapshot(proposals=(), phase=JobPhase.FAILED)))
    page.click("Logs")
    assert page.screen.tabs.chosen == "Logs"


def test_speed_and_quality_stand_in_the_heading(page, master):
    rate = units.rate(b.speed(b.NOW_PLAN))
    assert f"{rate} &middot; AUC 0.9401" in page.text
    master.state = b.snapshot(evaluation=None)
    page.redraw()
    assert f"{rate} &middot; loss 0.142" in page.text
