"""How a live view reaches its page: whom the page is told to ask, and that no change is lost on the way."""

import pytest
from bokeh.document import Document
from bokeh.models import ImportedStyleSheet
from chromium import outside
from masters import Master
from panel.io.document import MockSessionContext
from panel.io.state import set_curdoc

from dlrover_nb.core.session.client import JobHandle
from dlrover_nb.widgets.live import LiveView


@pytest.fixture
def master() -> Master:
    return Master()


@pytest.fixture
def view(master) -> LiveView:
    return LiveView(JobHandle("quick-start", master, user="ada"))


@pytest.fixture
def session() -> Document:
    """Give the document of a new session of a server that has written no page for it."""
    doc = Document()
    context = MockSessionContext(document=doc)
    doc._session_context = lambda: context
    return doc


def test_a_session_that_no_page_was_written_for_names_no_outside_host(view, session):
    """A page that comes late, or comes back after a break, gets such a session."""
    with set_curdoc(session):
        view.panel().server_doc(session)
    urls = {str(sheet.url) for sheet in session.select({"type": ImportedStyleSheet})}
    assert any("button.css" in url for url in urls)
    absolute = [url for url in urls if "://" in url]
    assert not outside(absolute)
