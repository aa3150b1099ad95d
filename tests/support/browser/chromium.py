"""Headless Chromium for every test that needs one, and what each page is asked: names, and no outside host.

One Chromium and one playwright driver serve all tests of a process: to start them costs seconds of CPU time, a
context costs milliseconds and shares no cookie, cache or storage with another one. A test's contexts are closed
after it; a Chromium that a test has ended is replaced for the next one.

Playwright's event loop runs in a greenlet of the main thread, and marks the thread as inside that loop for as long
as the driver lives: `asyncio.run` would be refused there. So the mark is set only while a test has the browser.
Rejected: to connect to a Chromium of its own for each test, which saves its start but not that of the driver.
"""

import asyncio
import re
import socket
from contextlib import contextmanager, suppress
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from suite.missing import missing

from support.waiting import LIMIT_S, until

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SCREENSHOTS = Path(__file__).parents[3] / "build" / "screenshots"
CONTROLS = (
    "button|checkbox|combobox|link|listbox|menuitem|radio|searchbox|slider|spinbutton|switch|tab|textbox"
)
UNNAMED = re.compile(rf"^\s*- (?:{CONTROLS})(?! \")\b.*", re.MULTILINE)
LOCAL = {"data", "blob", "file"}  # schemes that ask nobody


class Chromium:
    """A Chromium that tests use one after the other."""

    def __init__(self, playwright, error):
        self._playwright, self._error = playwright, error
        self._loop = asyncio.get_running_loop()
        self._browser = self._launch()
        _mark(None)

    @contextmanager
    def turn(self):
        """Give the browser to one test, and close what the test has opened."""
        _mark(self._loop)
        try:
            if not self._answers():
                self._browser = self._launch()
            yield self._browser
            for context in self._browser.contexts:
                with suppress(self._error):  # the test has ended the browser
                    context.close()
        finally:
            _mark(None)

    def end(self):
        """Close the browser, and let playwright end its driver."""
        _mark(self._loop)
        self._browser.close()

    def _launch(self):
        return self._playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=FLAGS, timeout=LIMIT_S * 1000
        )

    def _answers(self):
        """Whether the browser makes a context: only a call brings the news that its process has ended."""
        try:
            self._browser.new_context().close()
        except self._error:
            return False
        return True


def _mark(loop):
    """Mark the thread as inside an event loop, or outside of any."""
    asyncio._set_running_loop(loop)


@pytest.fixture(scope="session")
def chromium():
    """Start Chromium."""
    if not CHROMIUM.exists():
        missing("chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        chromium = Chromium(playwright, sync_api.Error)
        yield chromium
        chromium.end()
    _mark(None)


@pytest.fixture
def browser(chromium):
    """Give one test the Chromium of all, without what other tests have opened in it."""
    with chromium.turn() as browser:
        yield browser


@pytest.fixture
def new_page(browser):
    """Give pages that are watched: when the test ends, none of them has asked anybody but this machine."""
    asked_of = []

    def new(width=1400, height=1500):
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(LIMIT_S * 1000)
        page.on("request", lambda request: asked_of.append(request.url))
        page.on("websocket", lambda websocket: asked_of.append(websocket.url))
        return page

    yield new
    assert not outside(asked_of), "a page asked an outside host"


@pytest.fixture(scope="session")
def axe():
    """Return the script of axe, which checks a page's accessibility."""
    if find_spec("axe_playwright_python") is None:
        missing("axe")
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def broken_rules(page, axe, part="html"):
    """Return the rules of axe that a part of a page breaks, each with the elements at fault."""
    page.evaluate(f"() => {{ if (!window.axe) {{ {axe} }} }}")
    broken = page.evaluate("async part => (await axe.run(part)).violations", part)
    return [(rule["id"], [(n["html"][:160], n["failureSummary"]) for n in rule["nodes"]]) for rule in broken]


@pytest.fixture
def page(new_page):
    """Give one such page."""
    return new_page()


@pytest.fixture
def serve():
    """Serve what a function makes (a Panel object) on a free loopback port; give the address."""
    import panel as pn  # noqa: PLC0415 - seconds to import, for these tests only

    servers = []

    def start(make):
        port = free_port()
        servers.append(
            pn.serve(make, port=port, address="127.0.0.1", show=False, threaded=True, verbose=False,
                     websocket_origin=f"127.0.0.1:{port}")
        )  # fmt: skip
        until(lambda: is_open(port), what="the server")
        return f"http://127.0.0.1:{port}/"

    yield start
    for server in servers:
        server.stop()


def is_open(port):
    """Whether somebody listens on a port of loopback; a server on a thread of its own may not yet."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port():
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def outside(urls):
    """Return the addresses that are not on this machine."""
    parts = [(url, urlsplit(url)) for url in urls]
    return [url for url, part in parts if part.scheme not in LOCAL and part.hostname != "127.0.0.1"]


def unnamed(snapshot):
    """Return the lines of an aria snapshot with a control that a screen reader cannot name."""
    return UNNAMED.findall(snapshot)


def unlocked(page):
    """Wait until every decision button takes a press: one that has just changed takes none for a moment."""
    page.wait_for_function(
        "() => Bokeh.documents.every(doc => [...doc._all_models.values()].every(model =>"
        "performance.now() - (model.means_this_from ?? doc.dlrover_link?.began ?? -1e9) > 1000))"
        "&& Bokeh.documents.some(doc => doc.dlrover_link)"
    )


def picture(page, name, **options):
    """Keep a screenshot below build/, which CI stores."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", **options)
