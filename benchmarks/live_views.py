"""Live views in a real browser: time from tick to paint, cost, and memory growth.

`notebook.py` runs it. A simulated cluster and the server of the views run in this process, Chromium in its
own. Both are on one machine, so they share one clock.

**Tick to paint.** The server records the time when the poller passes a view its newest snapshot. In the
browser the chart's source reports when data arrives, and then the next paint of the plot is awaited; the time
of the first animation frame after it counts. Server and browser identify a tick by the last time in the
chart.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import re
import socket
import statistics
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import panel as pn
import psutil

from dlrover_nb.core.backends.simulated.assumptions import simulate
from dlrover_nb.core.simulator.workload import JobSampler
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.widgets.charts import throughput
from dlrover_nb.widgets.clusters.many import ManyJobs
from dlrover_nb.widgets.live.browser.poller import Poller
from dlrover_nb.widgets.live.live_view import LiveView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
SETTLE_S = 6.0  # for the page to load and histories to be filled in
CONTROLS = (
    "button|checkbox|combobox|link|listbox|menuitem|radio|searchbox|slider|spinbutton|switch|tab|textbox"
)
UNNAMED = re.compile(rf"^\s*- (?:{CONTROLS})(?! \")\b.*", re.MULTILINE)

# Marks each paint that follows data of one source; views are walked because Bokeh lists only the roots.
WATCH = """(name) => {
  const models = [...Bokeh.documents[0]._all_models.values()]
  const renderer = models.find(m => m.type == 'GlyphRenderer' && m.name == name)
  const source = renderer.data_source, seen = window.paints = []
  let plot = null
  const walk = (view) => {
    if (view.model?.type == 'Figure' && view.model.renderers.includes(renderer)) plot = view
    for (const child of view.children()) walk(child)
  }
  for (const root of Bokeh.index.roots ?? Object.values(Bokeh.index)) walk(root)
  let waiting = null
  const arrived = () => { waiting = source.data.t[source.data.t.length - 1] }
  const signals = [source.streaming, source.patching, source.properties.data.change]
  for (const signal of signals) signal.connect(arrived)
  const painting = ['_actual_paint', 'actual_paint', 'paint'].find(n => typeof plot[n] == 'function')
  const paint = plot[painting].bind(plot)
  plot[painting] = (...all) => {
    const result = paint(...all)
    if (waiting != null) {
      const t = waiting
      waiting = null
      requestAnimationFrame(() => seen.push([t, Date.now() / 1000]))
    }
    return result
  }
  return painting
}"""


@dataclass
class Watched:
    """A view that records when it received each tick."""

    view: Any
    newest: Callable[[Any], float]  # of a view: the last time in its chart
    at_s: dict[float, float] = field(default_factory=dict)

    def start(self) -> None:
        flush = self.view.flush

        def timed() -> None:
            self.at_s.setdefault(round(self.newest(self.view), 1), time.time())
            flush()

        self.view.flush = timed


def newest_of_many(view: ManyJobs) -> float:
    picture = view.view_model.state()
    return picture.wide.t_s[-1] - picture.origin_s if picture.wide.t_s else 0.0


def newest_of_job(view: LiveView) -> float:
    picture = view.view_model.state()
    t_s = throughput.columns(picture.snapshot, picture.series).measured.t_s
    return t_s[-1] if t_s else 0.0


@contextlib.contextmanager
def simulated(n_job: int, speed: float, mode: Mode = Mode.MANUAL) -> Iterator[Any]:
    """Return a simulated cluster with long jobs; in manual mode their plans are fixed."""
    cluster = simulate(machines=20 * n_job, speed=speed)
    rng, sampler = (
        np.random.default_rng(0),
        JobSampler(hours=(200.0, 0.2), max_hours=1000.0, mode=mode),
    )
    try:
        for i in range(n_job):
            cluster.add(sampler.sample(f"job-{i + 1}", rng))
        yield cluster
    finally:
        cluster.shutdown(force=True)


@contextlib.contextmanager
def served(make: Callable[[], Any]) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    logging.getLogger("bokeh").setLevel(logging.ERROR)  # it logs each message to a page just closed
    server = pn.serve(
        make, port=port, address="127.0.0.1", show=False, threaded=True, verbose=False,
        websocket_origin=f"127.0.0.1:{port}",
        unused_session_lifetime_milliseconds=1000, check_unused_sessions_milliseconds=500,
    )  # fmt: skip
    try:
        while not _is_open(port):
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.stop()
        server.join()


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Page:
    """One page with a count of the data sent to it and of its requests."""

    def __init__(self, browser: Any, address: str) -> None:
        self.n_byte, self.asked, self.errors = 0, list[str](), list[str]()
        self.page = browser.new_page(viewport={"width": 1400, "height": 1500})
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("websocket", self._websocket)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(address)
        self.page.wait_for_function("() => window.Bokeh?.documents?.[0]?.is_idle")

    def _websocket(self, websocket: Any) -> None:
        self.asked.append(websocket.url)
        websocket.on("framereceived", self._received)

    def _received(self, frame: str | bytes) -> None:
        self.n_byte += len(frame)

    def wait(self, seconds: float) -> None:
        self.page.wait_for_timeout(1000 * seconds)

    def outside(self) -> list[str]:
        """Return the requested addresses that are not on this machine."""
        parts = [(url, urlsplit(url)) for url in self.asked]
        return [url for url, p in parts if p.scheme not in {"data", "blob"} and p.hostname != "127.0.0.1"]

    def told(self) -> dict[str, int]:
        unnamed = UNNAMED.findall(self.page.locator("body").aria_snapshot())
        for url in (outside := self.outside()):
            print("outside request:", url)
        return {
            "outside_requests": len(outside),
            "unnamed_controls": len(unnamed),
            "page_errors": len(self.errors),
        }


def view_seconds() -> float:
    """Return the CPU seconds of this process's threads, without the simulation and this script."""
    process = {each.id: each.user_time + each.system_time for each in psutil.Process().threads()}
    others = [threading.main_thread(), *(t for t in threading.enumerate() if t.name == "simulated-cluster")]
    return sum(process.values()) - sum(process.get(t.native_id or 0, 0.0) for t in others)


def measure_view(browser: Any, watched: Watched, line: str, seconds: float, prefix: str) -> dict[str, Any]:
    """Open a view in a page and measure it for a while."""
    watched.start()
    with served(watched.view.panel) as address:
        page = Page(browser, address)
        page.wait(SETTLE_S)
        page.page.evaluate(WATCH, line)
        n_byte, cpu_s, began_s = page.n_byte, view_seconds(), time.monotonic()
        page.wait(seconds)
        took_s = time.monotonic() - began_s
        cpu_s, n_byte = view_seconds() - cpu_s, page.n_byte - n_byte
        paints = page.page.evaluate("() => window.paints")
        told = page.told()
        page.page.close()
    late_ms = sorted(
        1000 * (at_s - watched.at_s[round(t, 1)]) for t, at_s in paints if round(t, 1) in watched.at_s
    )
    if len(late_ms) < seconds / 4:
        raise SystemExit(
            f"{prefix}: of {seconds:g} ticks only {len(late_ms)} were seen painted; the view stands"
        )
    figures = {
        "paint_ms_p50": round(statistics.median(late_ms), 1),
        "paint_ms_p95": round(float(np.quantile(late_ms, 0.95)), 1),
        "paints": len(late_ms),
        "cpu_percent": round(100 * cpu_s / took_s, 1),
        "bytes_per_s": round(n_byte / took_s),
        **told,
    }
    return {f"{prefix}_{name}": value for name, value in figures.items()}


def one_job(browser: Any, seconds: float, speed: float) -> dict[str, Any]:
    with simulated(1, speed) as cluster:
        watched = Watched(LiveView(cluster.job("job-1"), Poller()), newest_of_job)
        return measure_view(browser, watched, "measured", seconds, "one")


def many_jobs(browser: Any, n_job: int, seconds: float, speed: float) -> dict[str, Any]:
    with simulated(n_job, speed) as cluster:
        watched = Watched(ManyJobs(cluster, Poller()), newest_of_many)
        return measure_view(browser, watched, "job-1", seconds, "many") | {"many_jobs": n_job}


def heap(browser: Any, n_job: int, minutes: float, speed: float) -> dict[str, Any]:
    """Measure the browser's heap after garbage collection while the jobs tick; a least-squares slope."""
    with simulated(n_job, speed) as cluster:
        view = ManyJobs(cluster, Poller())
        with served(view.panel) as address:
            page = Page(browser, address)
            devtools = page.page.context.new_cdp_session(page.page)
            page.wait(2 * SETTLE_S)
            rows, began_s = [], time.monotonic()
            while True:
                devtools.send("HeapProfiler.collectGarbage")
                used = devtools.send("Runtime.getHeapUsage")["usedSize"]
                rows.append((time.monotonic() - began_s, used / 2**20))
                if rows[-1][0] >= 60 * minutes:
                    break
                page.wait(min(60 * minutes / 12, 60 * minutes - rows[-1][0] + 0.05))
            page.page.close()
    at_s, mib = np.array(rows).T
    return {
        "heap_minutes": round(at_s[-1] / 60, 2),
        "heap_mib_first": round(mib[0], 2),
        "heap_mib_last": round(mib[-1], 2),
        "heap_mib_per_minute": round(float(np.polyfit(at_s / 60, mib, 1)[0]), 3),
    }


def cycles(browser: Any, n_job: int, n: int) -> dict[str, Any]:
    """Open and close a page repeatedly; what stays in the server's memory afterwards has leaked.

    The jobs run as slowly as real ones: this process holds their series too, which fill up meanwhile (at 30
    seconds a second, 50 jobs take 0.7 MiB more each second without any page).
    """
    process, rows = psutil.Process(), []
    pn.config.session_history = 0
    with simulated(n_job, 1.0) as cluster:
        view = ManyJobs(cluster, Poller())
        with served(view.panel) as address:
            for i in range(n + N_WARM):
                Page(browser, address).page.close()
                time.sleep(0.2)
                if i in {N_WARM - 1, n + N_WARM - 1}:
                    _await_closed(view)
                    rows.append(process.memory_info().rss / 2**20)
            left = view.n_screen
    return {
        "cycles": n,
        "cycles_rss_growth_mib": round(rows[1] - rows[0], 2),
        "cycles_screens_left": left,
    }


N_WARM = 8  # cycles before the first measurement: imports, caches, the allocator's arenas
CLOSED_LIMIT_S = 60.0  # for the server to notice that pages have gone


def _await_closed(view: ManyJobs) -> None:
    end_s = time.monotonic() + CLOSED_LIMIT_S
    while view.n_screen and time.monotonic() < end_s:
        time.sleep(0.5)
    gc.collect()


def is_there() -> bool:
    return Path(CHROMIUM).exists()
