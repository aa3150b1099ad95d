"""Make the picture of the dashboard in README: simulated jobs, the real server, Chromium.

``python tools/make_dashboard_picture.py [FOLDER]`` runs some jobs on a simulated cluster, accepts one
of their proposals, and writes ``dashboard.png`` (to ``docs/pictures`` by default). It needs the extras
``all`` and ``dev``, and Debian's chromium.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from pathlib import Path

from make_pictures import CHROMIUM, FLAGS
from playwright.sync_api import sync_playwright

import dlrover_nb
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.dashboard.common.clusters import WatchedCluster
from dlrover_nb.dashboard.common.team import Team
from dlrover_nb.dashboard.server import DashboardServer, serve
from dlrover_nb.dashboard.settings import ServeSettings
from dlrover_nb.dashboard.sign_in import OwnAccount

SIZE = {"width": 1400, "height": 800}
JOBS = (
    ("ads-ctr", "ada", "suggest"),
    ("feed-rank", "ada", "auto"),
    ("search-cvr", "bob", "suggest"),
    ("video-like", "bob", "auto"),
    ("mail-spam", "eva", "suggest"),
    ("shop-recall", "eva", "manual"),
)
LIMIT_S = 300.0


def main(folder: Path) -> None:
    """Run the jobs and take the picture."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = dlrover_nb.connect("sim", machines=12, speed=60)
    jobs = [
        cluster.submit({"name": name, "owner": owner, "mode": mode}, epochs=400) for name, owner, mode in JOBS
    ]
    for job, (_, _, mode) in zip(jobs, JOBS, strict=True):
        if mode == "suggest":
            job.wait(until="proposal", timeout_s=LIMIT_S)
    jobs[0].accept(why="worth its cost")
    with tempfile.TemporaryDirectory() as place:
        watched = WatchedCluster(cluster.core)
        team = Team({"sim": watched}, SystemClock().now_s, url=f"sqlite:///{place}/history.db")
        try:
            photograph(team, folder / "dashboard.png")
        finally:
            team.close()
            cluster.shutdown(force=True)


def photograph(team: Team, path: Path) -> None:
    """Serve a team and write a picture of its first page."""
    served: list[DashboardServer] = []
    listens, over = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    def ready(server: DashboardServer) -> None:
        served.append(server)
        listens.set()

    def run() -> None:
        server_of = lambda: DashboardServer(team, OwnAccount(), ServeSettings(port=0))  # noqa: E731 - one use
        loop.run_until_complete(serve(server_of, ready, over))

    thread = threading.Thread(target=run, name="dashboard")
    thread.start()
    try:
        if not listens.wait(LIMIT_S):
            raise TimeoutError("the server did not listen; its error stands above")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
            page = browser.new_page(viewport=SIZE)
            page.goto(f"{served[0].url}jobs")
            page.wait_for_timeout(30_000)  # of throughput, for its curve
            page.screenshot(path=str(path))
            browser.close()
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "pictures")
