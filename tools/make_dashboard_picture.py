"""Make the picture of the dashboard in README: the jobs of ``server --demo``, the real server, Chromium.

``python tools/make_dashboard_picture.py [FOLDER]`` writes ``dashboard.png``, to ``docs/pictures`` by default.
It needs the extras ``all`` and ``dev``, and Debian's chromium.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from pathlib import Path

from make_pictures import CHROMIUM, FLAGS
from playwright.sync_api import sync_playwright

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.dashboard.common.clusters import WatchedCluster
from dlrover_nb.dashboard.common.team import Team
from dlrover_nb.dashboard.demo_cluster import KEY, demo_cluster
from dlrover_nb.dashboard.server import DashboardServer, serve
from dlrover_nb.dashboard.settings import ServeSettings
from dlrover_nb.dashboard.sign_in import OwnAccount

SIZE = {"width": 1400, "height": 800}
LIMIT_S = 300.0


def main(folder: Path) -> None:
    """Start the demo's jobs and take the picture."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = demo_cluster()
    with tempfile.TemporaryDirectory() as place:
        team = Team({KEY: WatchedCluster(cluster)}, SystemClock().now_s, url=f"sqlite:///{place}/history.db")
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
