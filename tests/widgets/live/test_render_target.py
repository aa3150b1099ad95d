"""How a live view reaches its page: whom the page is told to ask, and that no change is lost on the way."""

import json
import threading
import weakref
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from bokeh.document import Document
from bokeh.io.doc import _PATCHED_CURDOCS
from bokeh.models import Axis, Button, Div, GlyphRenderer, ImportedStyleSheet, Plot, TextInput
from panel.io.model import add_to_doc
from panel.io.state import set_curdoc
from support.browser.chromium import outside
from support.jobs import builders as b
from support.jobs.masters import Master
from support.jobs.played_page import PlayedPage, models_of, new_session
from support.waiting import LIMIT_S, until

from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.widgets.charts import CHARTS
from dlrover_nb.widgets.live.browser.poller import Poller
from dlrover_nb.widgets.live.live_view import LiveView

pytestmark = pytest.mark.more


@pytest.fixture
def master() -> Master:
    return Master()


@pytest.fixture
def poller() -> Poller:
    poller = Poller()
    poller.close()  # here a test draws
    return poller


@pytest.fixture
def view(master, poller) -> LiveView:
    """Give a view whose picture is not stale on a machine that draws slowly."""
    return LiveView(JobHandle("quick-start", master, user="ada"), poller, monotonic=lambda: 0.0)


@pytest.fixture
def session() -> Document:
    return new_session()


def test_a_session_that_no_page_was_written_for_names_no_outside_host(view, session):
    """A page that comes late, or comes back after a break, gets such a session."""
    with set_curdoc(session):
        view.panel().server_doc(session)
    urls = {str(sheet.url) for sheet in session.select({"type": ImportedStyleSheet})}
    assert any("button.css" in url for url in urls)
    absolute = [url for url in urls if "://" in url]
    assert not outside(absolute)


def drawn(view: LiveView, doc: Document) -> None:
    """Have a page of the view, and let it draw what was scheduled."""
    doc.on_change_dispatch_to(doc)  # the session, which removes itself at its end
    with set_curdoc(doc):
        view.panel()
    while doc.session_callbacks:
        doc.session_callbacks[0].callback()


def test_a_page_whose_session_has_just_ended_is_dropped_and_the_others_go_on(view, session):
    """Bokeh takes the document apart first and tells of the end afterwards."""
    drawn(view, other := new_session())
    drawn(view, session)
    session.destroy(session)
    view.flush()
    assert view.n_screen == 1
    assert other.session_callbacks


class Page:
    """The page of a notebook: a copy of the kernel's document, changed by messages alone, both ways."""

    id = "page"

    def __init__(self, layout) -> None:
        self._comm, self._frames = object(), []  # open: Panel asks for it
        self._kernel_doc = Document()
        self._layout, root = layout, layout.get_root(self._kernel_doc, self)
        self._ref = root.ref["id"]
        add_to_doc(root, self._kernel_doc, True)
        self._kernel_doc.models.flush_synced()
        self.doc = Document.from_json(self._kernel_doc.to_json())
        layout._comms[self._ref] = (self, self)

    def send(self, content=None, *, buffers=()) -> None:
        """Take in what the kernel sends: three frames a message, and more for buffers."""
        assert not buffers, "these charts are too short for buffers"
        self._frames.append(content)
        if len(self._frames) == 3:
            _header, _metadata, patch = self._frames
            self._frames = []
            self.doc.apply_json_patch(json.loads(patch))  # fails for a model that it was never sent

    def say(self, model, attr, value) -> None:
        """Tell the kernel what the user changed."""
        patch = {"events": [{"kind": "ModelChanged", "model": {"id": model.id}, "attr": attr, "new": value}]}
        manager = SimpleNamespace(assemble=lambda message: _Patch(message["content"]))
        self._layout._on_msg(self._ref, manager, {"content": patch})

    def differences(self) -> list[str]:
        """Return what the page shows that is not as the kernel has it."""
        return [
            f"{model} {attr}: {getattr(self.doc.get_model_by_id(model.id), attr)!r}"
            for kind, attr in SHOWN
            for model in self._kernel_doc.select({"type": kind})
            if _plain(getattr(model, attr)) != _plain(getattr(self.doc.get_model_by_id(model.id), attr))
        ]


@pytest.fixture
def screen(view):
    return view._new_screen()


@pytest.fixture
def page(view, screen) -> Page:
    """Give the page of a cell in which the view has come alive."""
    page = Page(screen.stage.notebook_layout())
    screen.flush()
    accept = page.doc.get_model_by_id(screen.buttons.accept.id)
    assert accept.label == "Do it (p2)", "the view is not in the page"
    return page


@pytest.fixture
def drawn_elsewhere(session) -> Iterator[None]:
    """Have a served page drawn meanwhile by a server in another thread of this process, and broken off."""
    _PATCHED_CURDOCS.append(weakref.ref(session))
    yield
    _PATCHED_CURDOCS.pop()


def test_a_cell_is_not_taken_for_a_page_that_a_server_of_the_kernel_draws_meanwhile(
    drawn_elsewhere, page, session
):
    """Bokeh keeps the current documents of all threads in one list, and one that failed stays in it."""
    assert not page.differences()
    assert not session.session_callbacks


def pressed(screen):
    """Return the field that tells of a press."""
    (field,) = (each for each in models_of(screen, TextInput) if each.title == "pressed")
    return field


def shows(screen, words):
    """Draw what is new, and return whether the screen says it."""
    screen.flush()
    return any(words in div.text for div in models_of(screen, Div))


def differences(screen, page):
    """Compare between two drawings: other threads draw, too."""
    with screen.stage.lock:
        return page.differences()


def test_what_a_press_changes_reaches_the_page(master, view, screen, page):
    with master.lock:  # the master is slow to answer
        page.say(pressed(screen), "value", "Accept p2\n60000\nv0\n1")
        assert screen.buttons.accept.disabled
        assert not differences(screen, page)
    until(lambda: shows(screen, "accepted p2; not applied yet"))
    assert not differences(screen, page)


class Watched:
    """A lock that tells when somebody has to wait for it."""

    def __init__(self, lock, waits) -> None:
        self._lock, self._waits = lock, waits

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waits.set()
            self._lock.acquire()

    def __exit__(self, *_error) -> None:
        self._lock.release()


def test_a_press_while_the_view_is_drawn_loses_nothing_of_the_drawing(master, view, screen, page):
    """Panel lets go of all that is held as it takes in a message: a new node's line was lost so."""
    came, stage = threading.Event(), screen.stage
    stage.lock = Watched(stage.lock, came)

    def press() -> None:
        page.say(pressed(screen), "value", "Reject p2\n60000\nv0\n1")
        came.set()

    presser, grid = threading.Thread(target=press), screen.chart_grid
    mark = grid.mark

    def mark_and_be_pressed(candidate) -> None:
        mark(candidate)  # about the last of a drawing
        grid.mark = mark
        presser.start()
        assert came.wait(LIMIT_S)

    screen.tabs.choose("Memory")
    grid.mark = mark_and_be_pressed
    nodes = ("worker-0", "ps-0", "worker-1")
    master.chunks.append(b.series(303, nodes=nodes, start=300, cursor=master.chunks[-1].cursor + 1))
    view.view_model.fetch()
    screen.flush()
    presser.join()
    until(lambda: shows(screen, "rejected"))
    (memory,) = page.doc.select({"type": Plot, "id": screen.chart_grid.figures["memory"].root.id})
    assert "worker-1" in {renderer.name for renderer in memory.renderers}
    assert not differences(screen, page)


def test_each_page_comes_whole_when_it_is_opened_and_its_changes_follow(master, view, screen, page):
    for i, name in enumerate(screen.tabs.names):
        page.say(screen.tabs.model, "active", i)
        assert screen.tabs.chosen == name
        assert not differences(screen, page)
        master.pass_time()
        view.poll()
        assert not differences(screen, page)
    roots = [figure.root.id for figure in screen.chart_grid.figures.values()]
    assert all(page.doc.get_model_by_id(root) for root in roots)
    assert len(roots) == len(CHARTS)
    sheets = [str(sheet.url) for sheet in page.doc.select({"type": ImportedStyleSheet})]
    assert not outside([url for url in sheets if "://" in url])


def test_a_tap_on_a_page_that_was_opened_later_shows_its_plan(screen, page):
    page.say(screen.tabs.model, "active", screen.tabs.names.index("Plans"))
    tapped = b.front().candidates[0]
    renderers = screen.chart_grid.figures["front"].root.select({"type": GlyphRenderer})
    sources = (each.data_source for each in renderers if "words" in each.data_source.data)
    front = next(each for each in sources if tapped.cost in each.data["x"])
    page.say(front.selected, "indices", [front.data["x"].index(tapped.cost)])
    assert "Close" in {button.label for button in page.doc.select({"type": Button})}, "the sliders are open"
    assert screen.sliders.plan == tapped.plan
    assert not differences(screen, page)


def test_the_ticks_of_the_curve_are_no_new_model_each_second(master, view):
    page = PlayedPage(view.view_model)
    page.open("Plans")
    page.draw()
    before = page.screen.chart_grid.figures["curve"].root.xaxis.ticker
    master.step("p2", ProposalStatus.REJECTED)
    page.redraw()
    assert page.screen.chart_grid.figures["curve"].root.xaxis.ticker is before


class _Patch:
    """A message of the page, assembled."""

    def __init__(self, content) -> None:
        self._content = content

    def apply_to_document(self, doc, setter) -> None:
        doc.apply_json_patch(self._content, setter=setter)


SHOWN = [(Div, "text"), (Button, "label"), (Button, "disabled"), (Plot, "renderers"), (Axis, "ticker")]


def _plain(value):
    return [each.id for each in value] if isinstance(value, list) else getattr(value, "id", value)
