"""The live view of ipywidgets: what VS Code and Colab show, and what its buttons do."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from support.jobs import builders as b
from support.jobs.masters import Master
from support.waiting import until

from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.widgets.jobs.review_card import Answer
from dlrover_nb.widgets.live.browser import cell_outputs
from dlrover_nb.widgets.live.browser.widget_cell import RENEW_S, WidgetScreen, shows_widgets
from dlrover_nb.widgets.live.job_view_model import JobViewModel


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def master() -> Master:
    return Master()


@pytest.fixture
def model(master: Master) -> JobViewModel:
    return JobViewModel(JobHandle("quick-start", master, user="ada"), lambda: None, monotonic=lambda: 0.0)


def labels(screen: WidgetScreen) -> list[str]:
    return [each.description for each in screen.layout.children[1].children]


def button(screen: WidgetScreen, start: str):
    return next(e for e in screen.layout.children[1].children if e.description.startswith(start))


def test_it_has_the_sentence_its_buttons_and_the_static_view(model):
    screen = WidgetScreen(model)
    head, _, _, body = screen.layout.children
    assert "quick-start" in head.value
    assert {"Do it (p2)", "Not now (p2)"} <= set(labels(screen))
    assert "<svg" in body.value


def test_a_press_sends_what_the_button_names_though_another_proposal_is_open_by_now(master, model):
    screen = WidgetScreen(model)
    old = button(screen, "Do it (p2)")
    master.state = b.snapshot(
        proposals=(b.proposal("p2", status=ProposalStatus.SUPERSEDED), b.proposal("p3"))
    )
    model.fetch()
    screen.flush()
    assert "Do it (p3)" in labels(screen)
    old.click()
    answered = until(
        lambda: (r := model.state().request) and r.answer is not Answer.ASKED and r, what="an answer"
    )
    assert answered.answer is Answer.REFUSED
    assert "p2 is no longer open" in answered.why
    assert master.asked == []
    button(screen, "Do it (p3)").click()
    until(lambda: master.asked, what="a decision")
    assert [(each.verdict, each.proposal) for each in master.asked] == [(Verdict.ACCEPT, "p3")]


def test_who_may_only_look_has_no_buttons(model):
    assert labels(WidgetScreen(model, can_act=False)) == []


def test_the_static_view_is_made_anew_every_few_seconds_and_after_each_change(master, model):
    clock = Clock()
    screen = WidgetScreen(model, monotonic=clock)
    body = screen.layout.children[3]
    body.value = ""
    screen.flush()
    assert body.value == ""
    clock.now_s = RENEW_S
    screen.flush()
    assert "<svg" in body.value
    body.value = ""
    master.state = replace(master.state, phase=JobPhase.SUCCEEDED)
    model.fetch()
    screen.flush()
    assert "<svg" in body.value


@pytest.mark.parametrize("name", ["VSCODE_PID", "VSCODE_CWD"])
def test_vs_code_and_colab_get_it_and_jupyter_does_not(monkeypatch, name):
    for each in ("VSCODE_PID", "VSCODE_CWD"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.delitem(sys.modules, "google.colab", raising=False)
    assert not shows_widgets()
    monkeypatch.setenv(name, "1")
    assert shows_widgets()
    monkeypatch.delenv(name)
    monkeypatch.setitem(sys.modules, "google.colab", sys)
    assert shows_widgets()


def test_its_output_has_the_widget_and_the_static_copy_for_other_front_ends(model, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, **kinds: shown.append((data, kinds)))
    cell = cell_outputs.Cell(lambda: {"text/html": "<p>as last seen</p>", "text/plain": "as last seen"})
    cell.display_widget(WidgetScreen(model).layout)
    ((data, kinds),) = shown
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert data["text/html"] == "<p>as last seen</p>"
    assert kinds["raw"]
