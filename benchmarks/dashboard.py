"""Costs of the team's dashboard, in a real browser: first paint, ticks, filters, many sessions, memory.

The server is a process of its own (`dashboard_server.py`) with simulated jobs; Chromium is another one.
Both are on one machine, so they share its clock, and its cores.

=======================  ==========================================================================  =========
key                      figure                                                                      target
=======================  ==========================================================================  =========
first_paint_s            page *Jobs* of 50 jobs, from the request to its first filled table          <= 2
tick_to_paint_p50_ms     from the cluster being heard to the frame that shows it, 50 jobs at 1 Hz    <= 100
bytes_per_s              on the wire to one such page                                                <= 5000
cpu_percent              of the server for one such page, above its cost without any                 <= 5
sessions20_cores         of the server with 20 pages open                                            <= 1
sessions20_slower        tick to paint with 20 pages over that with one                              <= 2
cycles_rss_growth_mib    of the server, after 40 pages were opened and closed                        < 5
soak_mib_per_hour        its memory's slope with two open pages, over `--soak-minutes`               flat
history_wire_bytes       page of a past run of 100,000 points, compressed                            < 60000
history_pan_p50_ms       from moving its scrubber to the frame that shows that hour                  <= 50
thousand_page_s          page *Jobs* of 1,000 jobs                                                   <= 2
thousand_filter_ms       typing into its filter, to the frame that shows it                          <= 100
thousand_batch_s         page *Proposals* of 1,000 jobs                                              <= 1
accept_click_applied_s   on local Ray, from the click on Accept to its plan applied; by the verb too  measured
sessions200_lost         of 200 event streams opened in 60 s, those that were refused or ended       0
job_page_cpu_percent     of the server for one open page of a job; `job_pages5_cores` for five       measured
=======================  ==========================================================================  =========

    python benchmarks/dashboard.py [--parts ticks views thousand load accept cycles soak] [--soak-minutes 20]
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
from dashboard_accept import accept
from dashboard_views import job_pages, past_run
from lengths import parsed, print_figures
from live_views import chromium, is_there

from dlrover_nb.dashboard.server import KEPT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
TARGETS = {
    "first_paint_s": 2.0,
    "tick_to_paint_p50_ms": 100.0,
    "bytes_per_s": 5000.0,
    "cpu_percent": 5.0,
    "sessions20_cores": 1.0,
    "sessions20_slower": 2.0,
    "cycles_rss_growth_mib": 5.0,
    "history_wire_bytes": 60_000.0,
    "history_pan_p50_ms": 50.0,
    "thousand_page_s": 2.0,
    "thousand_filter_ms": 100.0,
    "thousand_batch_s": 1.0,
    "sessions200_lost": 0.0,
}
SPEED = 30.0  # simulated seconds a second: each job reports in each tick
REAL = 1.0  # as slowly as real jobs: the process holds their series too, 0.7 MiB more a second at `SPEED`
STILL = 0.02
# Of two servers with the same jobs, one without pages: what it grows by is of the jobs, which live elsewhere
# in truth. Its growth is taken off.
# What the measured process does in real time has no event to wait for.
BEGIN_S = 3.0  # until the simulated jobs report
LOAD_S = 15.0  # until what the first page has begun to import is there
PROPOSE_S = 60.0  # until jobs have measured enough to be proposed a plan
GONE_S = KEPT_S + 40.0  # until the documents of pages that have gone are not kept any more
HEAR_S = 10.0  # in which each stream must be told something
N_WARM = 40  # cycles before the first measurement: as many pages at a time as later need as much memory
PROPOSALS = "() => document.querySelector('main table, main p')"
MAIN = "() => document.querySelector('main')"
FILLED = "() => document.querySelectorAll('#table tbody tr td').length > 0"
# The time of the first frame after each change of the table.
PAINTS = """() => {
  window.paints = []
  let waits = false
  new MutationObserver(() => {
    if (waits) return
    waits = true
    requestAnimationFrame(() => setTimeout(() => { waits = false; window.paints.push(Date.now() / 1000) }))
  }).observe(document.querySelector('#table'), {subtree: true, childList: true, characterData: true})
}"""
TYPED = """async ([word, field]) => {
  const input = document.querySelector(field)
  const began = performance.now()
  input.value = word
  input.dispatchEvent(new Event('input', {bubbles: true}))
  await new Promise(done => requestAnimationFrame(() => setTimeout(done)))
  return performance.now() - began
}"""


class Server:
    """The server's process."""

    def __init__(self, n_job: int, *flags: str, speed: float = SPEED) -> None:
        command = [sys.executable, str(HERE / "dashboard_server.py"), str(n_job), str(speed), *flags]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url.startswith("http"):
            raise SystemExit("the server did not start")

    def asked(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("?\n")
        self._process.stdin.flush()
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        return told

    def cpu_percent(self, seconds: float) -> float:
        before, began_s = self.asked()["cpu_s"], time.monotonic()
        time.sleep(seconds)
        return 100 * (self.asked()["cpu_s"] - before) / (time.monotonic() - began_s)

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)


@contextlib.contextmanager
def served(n_job: int, *flags: str, speed: float = SPEED) -> Iterator[Server]:
    server = Server(n_job, *flags, speed=speed)
    try:
        time.sleep(BEGIN_S)
        yield server
    finally:
        server.end()


class Page:
    """A page whose bytes are counted, event streams too."""

    def __init__(self, browser: Any, url: str, filled: str = FILLED) -> None:
        self.n_byte = 0
        self.context = browser.new_context(viewport={"width": 1400, "height": 1000})
        self.page = self.context.new_page()
        wire = self.context.new_cdp_session(self.page)
        wire.send("Network.enable")
        wire.on("Network.dataReceived", self._received)
        began_s = time.monotonic()
        self.page.goto(url)
        self.page.wait_for_function(filled)
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        self.paint_s = time.monotonic() - began_s

    def _received(self, told: dict[str, Any]) -> None:
        self.n_byte += told.get("encodedDataLength") or told.get("dataLength", 0)

    def wait(self, seconds: float) -> None:
        self.page.wait_for_timeout(1000 * seconds)

    def close(self) -> None:
        self.context.close()


def late_ms(page: Page, server: Server, seconds: float) -> list[float]:
    """Return for each tick the time from the cluster being heard to the first frame that shows it."""
    page.page.evaluate(PAINTS)
    server.asked()
    page.wait(seconds)
    heard, paints = server.asked()["heard_s"], page.page.evaluate("() => window.paints")
    found = []
    for at_s in heard[:-1]:
        after = [paint for paint in paints if paint >= at_s]
        if after and after[0] - at_s < 1.0:
            found.append(1000 * (after[0] - at_s))
    if len(found) < seconds / 4:
        raise SystemExit(f"of {len(heard)} ticks only {len(found)} were seen painted; the page stands")
    return found


def ticks(browser: Any, seconds: float) -> dict[str, Any]:
    with served(50) as server:
        Page(browser, f"{server.url}jobs").close()  # the first page of a process also imports
        time.sleep(LOAD_S)
        idle = server.cpu_percent(seconds)
        page = Page(browser, f"{server.url}jobs")
        page.wait(5)
        n_byte, began_s, before = page.n_byte, time.monotonic(), server.asked()["cpu_s"]
        late = late_ms(page, server, seconds)
        took_s = time.monotonic() - began_s
        busy = 100 * (server.asked()["cpu_s"] - before) / took_s
        one = {
            "first_paint_s": round(page.paint_s, 3),
            "tick_to_paint_p50_ms": round(statistics.median(late), 1),
            "tick_to_paint_p95_ms": round(float(np.quantile(late, 0.95)), 1),
            "bytes_per_s": round((page.n_byte - n_byte) / took_s),
            "cpu_percent": round(busy - idle, 2),
            "cpu_percent_idle": round(idle, 2),
        }
        with streams(server, 19):
            page.wait(3)
            before, began_s = server.asked()["cpu_s"], time.monotonic()
            more = late_ms(page, server, seconds)
            cores = (server.asked()["cpu_s"] - before) / (time.monotonic() - began_s)
        slower = statistics.median(more) / statistics.median(late)
        page.close()
    return one | {"sessions20_cores": round(cores, 3), "sessions20_slower": round(slower, 2)}


class Stream:
    """An event stream of the page *Jobs*, read on a thread."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.n_event, self.is_lost = 0, False
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        self._connection.request("GET", "/events/jobs")
        self._answer = self._connection.getresponse()
        self.is_lost, self._is_closed = self._answer.status != 200, False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            while line := self._answer.readline():
                self.n_event += line.startswith(b"data:")
        except (OSError, ValueError, AttributeError):
            pass
        self.is_lost = self.is_lost or not self._is_closed

    def close(self) -> None:
        self._is_closed = True
        self._connection.close()


@contextlib.contextmanager
def streams(server: Server, n: int) -> Iterator[list[Stream]]:
    opened = [Stream(server.url) for _ in range(n)]
    try:
        yield opened
    finally:
        for each in opened:
            each.close()


def cycles(browser: Any, n: int) -> dict[str, Any]:
    """Open and close pages, each fourth one with the live view of a job; what stays in memory has leaked.

    The jobs stand nearly still. Simulated jobs in the same process keep more from second to second, and what
    they keep between the parts of a page holds the allocator's arena when the page has gone: with them the
    arenas of Python's allocator grew by 0.5 MiB per page of a job, while the bytes in use did not.
    """
    rows, aside = [], []
    with served(50, speed=STILL) as server, served(50, speed=STILL) as other:
        for i in range(n + N_WARM):
            if i % 4 == 3:
                page = Page(browser, f"{server.url}job?name=job-1", MAIN)
                page.wait(2)
            else:
                page = Page(browser, f"{server.url}jobs")
            page.close()
            if i in {N_WARM - 1, n + N_WARM - 1}:
                time.sleep(GONE_S)
                rows.append(server.asked())
                aside.append(other.asked())
    of_jobs = aside[1]["rss_mib"] - aside[0]["rss_mib"]
    return {
        "cycles": n,
        "cycles_rss_growth_mib": round(rows[1]["rss_mib"] - rows[0]["rss_mib"] - of_jobs, 2),
        "cycles_rss_growth_jobs_mib": round(of_jobs, 2),
        "cycles_blocks_growth": rows[1]["blocks"] - rows[0]["blocks"],  # of Python's allocator, in use
        "cycles_threads_growth": rows[1]["threads"] - rows[0]["threads"],
    }


def soak(browser: Any, minutes: float) -> dict[str, Any]:
    """Leave two pages open; the slope of the server's memory after the first quarter, by least squares."""
    with served(50, speed=REAL) as server, served(50, speed=REAL) as other:
        pages = [Page(browser, f"{server.url}jobs"), Page(browser, f"{server.url}job?name=job-1", MAIN)]
        rows, began_s = [], time.monotonic()
        while time.monotonic() - began_s < 60 * minutes:
            pages[0].wait(10)
            took_s = time.monotonic() - began_s
            rows.append((took_s, server.asked()["rss_mib"], other.asked()["rss_mib"]))
        for page in pages:
            page.close()
    at_s, mib, of_jobs = np.array(rows[len(rows) // 4 :]).T
    slope, jobs_slope = np.polyfit(at_s / 3600, np.array([mib - of_jobs, of_jobs]).T, 1)[0]
    return {
        "soak_minutes": minutes,
        "soak_mib_per_hour": round(float(slope), 2),
        "soak_jobs_mib_per_hour": round(float(jobs_slope), 2),
        "soak_rss_mib": round(mib[-1], 1),
    }


def views(browser: Any, seconds: float) -> dict[str, Any]:
    with served(50, "--history", speed=REAL) as server:
        time.sleep(LOAD_S)
        figures = past_run(browser, server.url)
        return figures | job_pages(browser, server.url, server.cpu_percent, seconds)


def thousand(browser: Any) -> dict[str, Any]:
    with served(1000, "--proposals", speed=60.0) as server:
        time.sleep(PROPOSE_S)
        Page(browser, f"{server.url}jobs").close()
        page = Page(browser, f"{server.url}jobs")
        words = ["job-1", "job-12", "job-9", "", "job-77"] * 4
        typed = [page.page.evaluate(TYPED, [word, "#filters [name=q]"]) for word in words]
        paint_s = page.paint_s
        page.close()
        took_s = []
        for _ in range(3):
            batch = Page(browser, f"{server.url}proposals", PROPOSALS)
            took_s.append(batch.paint_s)
            n_open = batch.page.locator("main input[type=checkbox]").count()
            batch.close()
    return {
        "thousand_page_s": round(paint_s, 3),
        "thousand_filter_ms": round(statistics.median(typed), 1),
        "thousand_batch_s": round(statistics.median(took_s), 3),
        "thousand_batch_first_s": round(took_s[0], 3),
        "thousand_open": n_open,
    }


def load(n: int, seconds: float) -> dict[str, Any]:
    """Open many event streams within a minute; all of them must still be told a while later."""
    with served(50) as server:
        opened: list[Stream] = []
        before, began_s = server.asked()["cpu_s"], time.monotonic()
        try:
            for i in range(n):
                opened.append(Stream(server.url))
                time.sleep(max(0.0, began_s + (i + 1) * seconds / n - time.monotonic()))
            known = [each.n_event for each in opened]
            time.sleep(HEAR_S)
            n_lost = sum(
                each.is_lost or each.n_event == n_known for each, n_known in zip(opened, known, strict=True)
            )
            cores = (server.asked()["cpu_s"] - before) / (time.monotonic() - began_s)
        finally:
            for each in opened:
                each.close()
    return {"sessions200": n, "sessions200_lost": n_lost, "sessions200_cores": round(cores, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ("ticks", "views", "thousand", "load", "accept", "cycles", "soak")
    parser.add_argument("--parts", nargs="+", choices=names, default=["ticks"])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--soak-minutes", type=float, default=20.0)
    given = parsed(parser, parts=list(names), seconds=30.0)
    if not is_there():
        raise SystemExit("needs Debian's chromium")
    figures: dict[str, Any] = {}
    with chromium() as browser:
        measured = {
            "ticks": lambda: ticks(browser, given.seconds),
            "views": lambda: views(browser, given.seconds),
            "thousand": lambda: thousand(browser),
            "load": lambda: load(200, 60.0),
            "accept": lambda: accept(browser),
            "cycles": lambda: cycles(browser, 40),
            "soak": lambda: soak(browser, given.soak_minutes),
        }
        for part, measure in measured.items():
            if part in given.parts:
                figures |= measure()
                print(part, json.dumps(figures), flush=True)
    for name, target in TARGETS.items():
        if name in figures:
            verdict = "met" if figures[name] <= target else "MISSED"
            print(f"{name:24} {figures[name]:>10} target {target:g}: {verdict}")
    print_figures("dashboard", figures)


if __name__ == "__main__":
    main()
