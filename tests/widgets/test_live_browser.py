"""The served live view in headless Chromium: what a person reads, presses and is told."""

from __future__ import annotations

import pytest
from chromium import unnamed
from masters import Master
from waiting import until

from dlrover_nb.core.session.client import JobHandle
from dlrover_nb.core.structs.decisions import ProposalStatus
from dlrover_nb.widgets.live import LiveView

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("default"),  # tornado and playwright warn of each other's event loops
]


@pytest.fixture
def master() -> Master:
    return Master()


@pytest.fixture
def address(master: Master, serve) -> str:
    return serve(LiveView(JobHandle("quick-start", master, user="ada")).panel)


def test_accept_tells_the_truth_from_asked_to_applied(master, address, page):
    page.goto(address)
    accept = page.get_by_role("button", name="Accept")
    accept.wait_for()
    status = page.get_by_role("status")
    until(lambda: "p2 (IMPROVE) waits" in status.aria_snapshot())
    assert page.get_by_label("Axis of the fitted curve").is_visible()
    assert page.locator("canvas").count() >= 4
    assert not unnamed(page.locator("body").aria_snapshot())

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
