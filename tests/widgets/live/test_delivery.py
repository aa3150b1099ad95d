"""A notebook's page that misses messages: whatever is lost, it ends with the picture that a fresh view has."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from bokeh.document import Document
from bokeh.document.models import DocumentModelManager
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from panel.io.model import add_to_doc
from support.jobs import builders as b
from support.jobs.masters import Master

from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.widgets.live.browser.poller import Poller
from dlrover_nb.widgets.live.delivery import KEY, LEAST_APART_S, NumberedComm
from dlrover_nb.widgets.live.live_view import LiveView


class UnknownModelError(Exception):
    """A message is about a model that the page was never sent."""


class Reader:
    """A page: its models as plain values, changed by frames alone, by the rules of `delivery.TAKES`."""

    def __init__(self, document: dict) -> None:
        self.models: dict[str, dict[str, object]] = {}
        self.asks = self.mends = False
        self._at, self._frames = [0, 0], []
        for root in document["roots"]:
            self._value(root)

    def shows(self, model) -> bool:
        """Whether it has a model."""
        return model.id in self.models

    def take(self, data: str | None, at: list[int]) -> None:
        """Take in one frame, or ask for the whole picture."""
        begins = at[0] > self._at[0] and at[1] == 1
        takes_none = self.asks and not self.mends
        if not begins and (takes_none or at != [self._at[0], self._at[1] + 1]):
            self.asks, self.mends = True, False
            return
        if begins:
            self._frames, self.mends = [], True
        self._at = at
        self._frames.append(data)
        if len(self._frames) == 3:
            patch, self._frames = json.loads(self._frames[2]), []
            self._apply(patch)

    def _apply(self, patch: dict) -> None:
        try:
            events = [
                each | {"new": self._value(each.get("new")), "data": self._value(each.get("data"))}
                for each in patch["events"]
            ]
            for event in events:
                self._change(event)
        except UnknownModelError:
            self.asks, self.mends = True, False
        else:
            if self.mends:
                self.asks = self.mends = False

    def _change(self, event: dict) -> None:
        model = self._model(event["model"]["id"])
        match event["kind"]:
            case "ModelChanged":
                model[event["attr"]] = event["new"]
            case "ColumnDataChanged":
                model["data"] = event["data"] if event.get("cols") is None else model["data"] | event["data"]
            case "ColumnsStreamed":
                columns, n = model["data"], event["rollover"]
                model["data"] = {name: (columns[name] + new)[-n:] for name, new in event["data"].items()}
            case "ColumnsPatched":
                for name, cells in self._value(event["patches"]).items():
                    for i, cell in cells:
                        model["data"][name][i] = cell
            case other:
                raise AssertionError(other)

    def _model(self, name: str) -> dict[str, object]:
        if name not in self.models:
            raise UnknownModelError(name)
        return self.models[name]

    def _value(self, value: object) -> object:
        if isinstance(value, list):
            return [self._value(each) for each in value]
        if not isinstance(value, dict):
            return value
        if value.get("type") == "object" and "id" in value:
            self.models.setdefault(value["id"], {}).update(
                {name: self._value(each) for name, each in value.get("attributes", {}).items()}
            )
            return value["id"]
        if value.get("type") == "map":
            return {str(name): self._value(each) for name, each in value.get("entries", [])}
        if "id" in value:
            self._model(value["id"])
            return value["id"]
        return {name: self._value(each) for name, each in value.items()}


class Cell:
    """A live view in a notebook's cell, and its page at the other end of a link that loses frames.

    Attributes
    ----------
    generation
        Of the last frame that was sent.
    loses
        Which of the next frames to lose, counted from 0.
    """

    id = "page"

    def __init__(self) -> None:
        self.master, self.now_s = Master(), 0.0
        self.loses, self.n_frame, self.generation, self.n_named = frozenset[int](), 0, 0, 2
        self._comm = object()  # open: Panel asks for it
        closed = Poller()
        closed.close()  # here a test draws
        self.view = LiveView(JobHandle("quick-start", self.master, user="ada"), closed)
        self.screen = self.view._new_screen()
        self._layout = self.screen.stage.notebook_layout()
        self._doc = Document()
        self._root = self._layout.get_root(self._doc, self)
        add_to_doc(self._root, self._doc, True)
        self._layout._comms[self._root.ref["id"]] = (self, SimpleNamespace())
        self._layout._numbered = NumberedComm(self, lambda: self.now_s)
        self._doc.models.flush_synced()
        self.page = Reader(self._doc.to_json().content)

    def send(self, data=None, metadata=None, buffers=()) -> None:
        """Carry one frame to the page, or lose it."""
        assert not buffers, "these charts are too short for buffers"
        self.n_frame, self.generation = self.n_frame + 1, metadata[KEY][0]
        if self.n_frame - 1 not in self.loses:
            self.page.take(data, metadata[KEY])

    def draw(self) -> None:
        """Draw what is new, and answer what the page asks."""
        self.now_s += 1.0
        self.view.poll()
        if self.page.asks:
            self.ask()

    def ask(self) -> None:
        """Ask for the whole picture, as a page does that has missed a frame."""
        self._layout._on_msg(self._root.ref["id"], None, {KEY: [0, 0]})

    def recover(self) -> None:
        """Lose nothing more, until the page asks for nothing."""
        self.loses = frozenset()
        self.now_s += LEAST_APART_S
        self.draw()
        self.draw()
        assert not self.page.asks

    def differences(self) -> list[str]:
        """Return what the page has otherwise than a fresh view of the same document would."""
        with self.screen.stage.lock:  # between two drawings: other threads draw, too
            fresh = Reader(self._doc.to_json().content).models
            return [
                f"{name} {attr}: {self.page.models.get(name, {}).get(attr)!r}, not {value!r}"[:200]
                for name, model in fresh.items()
                for attr, value in model.items()
                if self.page.models.get(name, {}).get(attr) != value
            ]


def _propose(cell: Cell) -> None:
    """Replace the open proposal by another one."""
    cell.n_named += 1
    proposals = (b.proposal("p2", status=ProposalStatus.SUPERSEDED), b.proposal(f"p{cell.n_named}"))
    cell.master.state = replace(cell.master.state, proposals=proposals)


def _apply(cell: Cell) -> None:
    cell.master.step(f"p{cell.n_named}", ProposalStatus.APPLIED)


def _new_node(cell: Cell) -> None:
    start, cursor = 700 + 10 * cell.n_named, cell.master.chunks[-1].cursor + 1
    nodes = ("worker-0", "ps-0", f"worker-{cell.n_named}")
    cell.master.chunks.append(b.series(start + 3, nodes=nodes, start=start, cursor=cursor))


def _choose(cell: Cell) -> None:
    cell.screen.sliders.choose(b.plan(1 + cell.n_named % 4, 1, 0.5, 0.5))


def _open(cell: Cell) -> None:
    """Open the next page."""
    names, chosen = cell.screen.tabs.names, cell.screen.tabs.model.active
    cell.screen.tabs.choose(names[(0 if chosen is None else chosen + 1) % len(names)])


def _end(cell: Cell) -> None:
    cell.master.state = replace(cell.master.state, phase=JobPhase.SUCCEEDED)


HAPPENINGS = (_propose, _new_node, _open, _apply, _choose, _open, _propose, _new_node, _open)


@pytest.fixture(scope="module")
def cell():
    """Give the cell of a view that has come alive, which costs seconds."""
    cell = Cell()
    cell.draw()
    return cell


@pytest.mark.more
@given(st.frozensets(st.integers(0, 60), max_size=40))
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(frozenset(range(60)))
def test_whatever_is_lost_the_page_ends_with_the_picture_of_a_fresh_view(cell, loses):
    cell.n_frame, cell.loses = 0, loses
    for happens in HAPPENINGS:
        happens(cell)
        cell.draw()
    cell.recover()
    assert not cell.differences()


@pytest.mark.more
def test_a_view_that_comes_alive_has_its_models_collected_a_few_times_and_not_for_each_of_them(monkeypatch):
    """Bokeh walks all models of a page for each that comes: three of four seconds of a cell's first drawing."""
    cell, collect, calls = Cell(), DocumentModelManager.recompute, []

    def counted(models):
        calls.append(models)
        collect(models)

    monkeypatch.setattr(DocumentModelManager, "recompute", counted)
    cell.draw()
    assert cell.page.shows(cell.screen.buttons.accept)
    assert len(calls) < 10


@pytest.mark.more
def test_a_view_whose_first_message_is_lost_comes_alive():
    cell = Cell()
    cell.loses = frozenset({1})
    cell.draw()
    cell.recover()
    assert cell.generation
    assert cell.page.shows(cell.screen.buttons.accept)
    assert not cell.differences()


def test_a_page_that_loses_nothing_is_sent_no_whole_picture(cell):
    cell.recover()
    generation = cell.generation
    for happens in HAPPENINGS:
        happens(cell)
        cell.draw()
        assert not cell.page.asks
    assert not cell.differences()
    assert cell.generation == generation


def test_a_page_that_asks_again_and_again_is_sent_one_picture_in_a_while(cell):
    cell.recover()
    cell.now_s += LEAST_APART_S
    generation = cell.generation
    for _ in range(5):
        cell.ask()
    assert cell.generation == generation + 1


def test_a_view_of_a_job_that_has_ended_sends_nothing_more(cell):
    _end(cell)
    cell.draw()
    cell.draw()
    n_frame = cell.n_frame
    cell.draw()
    assert cell.n_frame == n_frame
