"""The served live view in headless Chromium: what a person reads, presses and is told."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from masters import Master

from dlrover_nb.core.session.client import JobHandle
from dlrover_nb.core.structs.decisions import ProposalStatus
from dlrover_nb.widgets.live import LiveView

if TYPE_CHECKING:
    from collections.abc import Iterator

CHROMIUM = "/usr/bin/chromium"
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

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not Path(CHROMIUM).exists() and not os.environ.get("CI"), reason="needs Debian's chromium"
    ),
    pytest.mark.filterwarnings("default"),  # tornado and playwright warn of each other's event loops
]


@pytest.fixture
def master() -> Master:
    return Master()


@pytest.fixture
def address(master: Master) -> Iterator[str]:
    """Serve a live view on a free loopback port, on a thread of its own."""
    import panel as pn  # noqa: PLC0415 - seconds to import, for this test only

    view = LiveView(JobHandle("quick-start", master, user="ada"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = pn.serve(
        view.panel, port=port, address="127.0.0.1", show=False, threaded=True, verbose=False,
        websocket_origin=f"127.0.0.1:{port}",
    )  # fmt: skip
    yield f"http://127.0.0.1:{port}/"
    server.stop()


def until(predicate, timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not predicate():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.05)


def test_accept_tells_the_truth_from_asked_to_applied(master, address):
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            page = browser.new_page(viewport={"width": 1250, "height": 1250})
            asked_of: list[str] = []
            page.on("request", lambda request: asked_of.append(request.url))
            page.goto(address)
            accept = page.get_by_role("button", name="Accept")
            accept.wait_for()
            status = page.get_by_role("status")
            until(lambda: "p2 (IMPROVE) waits" in status.aria_snapshot())
            assert page.get_by_label("Axis of the fitted curve").is_visible()
            assert page.locator("canvas").count() >= 4

            with master.lock:  # the master is slow to answer
                accept.click()
                until(lambda: "Asked to accept p2" in status.aria_snapshot())
                assert accept.is_disabled()
            until(lambda: "accepted, not applied yet" in status.aria_snapshot())
            master.step("p2", ProposalStatus.APPLYING)
            until(lambda: "applying" in status.aria_snapshot())
            master.step("p2", ProposalStatus.APPLIED)
            until(lambda: "applied after a pause of 2.4 s" in status.aria_snapshot())

            assert master.asked[0].proposal == "p2"
            assert accept.is_disabled()
            assert not [url for url in asked_of if not url.startswith((address, "data:", "blob:"))]
        finally:
            browser.close()
