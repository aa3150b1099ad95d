"""Make the pictures of README and documentation from a real run: a job on a local Ray, in Chromium.

``python tools/make_pictures.py [FOLDER]`` trains the quick start's job, accepts its first proposal, and
writes ``live-view.png`` and ``plans.png`` (to ``docs/pictures`` by default). It needs the extras ``all`` and
``dev``, and Debian's chromium.
"""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import panel as pn
from playwright.sync_api import sync_playwright

import dlrover_nb
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus

if TYPE_CHECKING:
    from playwright.sync_api import FloatRect, Page

    from dlrover_nb import Job

CHROMIUM = "/usr/bin/chromium"
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
LIVE = {"width": 1220, "height": 525}  # as wide as a view becomes, down to the names of its pages
PLANS = {"width": 1000, "height": 800}  # the picture is as high as the plans down to their last chart
BOTTOMS = "() => [...document.querySelectorAll('svg')].map(svg => svg.getBoundingClientRect().bottom)"
JOB = """
name: quick-start
epochs: 400
plan: {worker: {count: 1, cpu: 0.5, memory_mib: 1024}, ps: {count: 1, cpu: 0.25, memory_mib: 512}}
bounds: {max_workers: 3, max_ps: 2, worker_cpus: [0.5], ps_cpus: [0.25]}
"""
LIMIT_S = 600.0


def main(folder: Path) -> None:
    """Run the job and take the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    pn.extension(inline=True)
    cluster = dlrover_nb.connect("ray")
    try:
        job = cluster.submit(JOB)
        job.wait(until="proposal", timeout_s=LIMIT_S)
        job.accept(why="for the picture")
        _await_applied(job)
        job.wait(until="proposal", timeout_s=LIMIT_S)
        photograph(job, folder)
        job.stop()
    finally:
        cluster.shutdown(force=True)


def _await_applied(job: Job) -> None:
    moving = {ProposalStatus.ACCEPTED, ProposalStatus.APPLYING}
    end_s = time.monotonic() + LIMIT_S
    while any(p.status in moving for p in job.snapshot().proposals) and time.monotonic() < end_s:
        time.sleep(1.0)


def photograph(job: Job, folder: Path) -> None:
    """Write a picture of the live view, and one of the static plans."""
    with socket.socket() as probe:  # a server in a thread does not tell its port
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = pn.serve(
        job.watch().panel, address="127.0.0.1", port=port, show=False, threaded=True, verbose=False
    )
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
            page = browser.new_page(viewport=LIVE)
            page.set_default_timeout(LIMIT_S * 1000)
            page.goto(f"http://127.0.0.1:{port}")
            page.wait_for_function(
                "() => window.Bokeh && Bokeh.documents.length && Bokeh.documents[0].is_idle"
            )
            page.get_by_role("button", name="Something else").wait_for()
            page.wait_for_timeout(5000)  # some ticks of the charts
            page.screenshot(path=str(folder / "live-view.png"))
            page.set_viewport_size(PLANS)
            page.set_content(f"<body style='margin:10px'>{job.plans().view().html()}</body>")
            page.screenshot(path=str(folder / "plans.png"), full_page=True, clip=_charts(page))
            browser.close()
    finally:
        server.stop()


def _charts(page: Page) -> FloatRect:
    """Return the part of a page that ends below its last chart: a fixed height would cut one in two."""
    return {"x": 0, "y": 0, "width": PLANS["width"], "height": max(page.evaluate(BOTTOMS)) + 10}


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "pictures")
