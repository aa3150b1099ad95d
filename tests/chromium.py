"""Headless Chromium for every test that needs one, and what each page is asked: names, and no outside host."""

import os
import re
import socket
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from waiting import LIMIT_S, until

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
SCREENSHOTS = Path(__file__).parents[1] / "build" / "screenshots"
CONTROLS = (
    "button|checkbox|combobox|link|listbox|menuitem|radio|searchbox|slider|spinbutton|switch|tab|textbox"
)
UNNAMED = re.compile(rf"^\s*- (?:{CONTROLS})(?! \")\b.*", re.MULTILINE)
LOCAL = {"data", "blob", "file"}  # schemes that ask nobody


@pytest.fixture
def browser():
    """Headless Chromium; it may be missing on a developer's machine, never in CI."""
    if not CHROMIUM.exists() and not os.environ.get("CI"):
        pytest.skip("needs Debian's chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=FLAGS, timeout=LIMIT_S * 1000
        )
        yield browser
        browser.close()


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
    """Return the script of axe, which checks a page's accessibility; it may be missing as Chromium may be."""
    if find_spec("axe_playwright_python") is None and not os.environ.get("CI"):
        pytest.skip("needs axe-playwright-python, of the extra `dev`")
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
        "() => Bokeh.documents.every(doc => [...doc._all_models.values()].every("
        "model => performance.now() - (model.means_this_from ?? -1e9) > 1000))"
    )


def picture(page, name, **options):
    """Keep a screenshot below build/, which CI stores."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", **options)
