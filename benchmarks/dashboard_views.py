"""Costs of the dashboard's heavier views, for `dashboard.py`: a long past run, and the live page of a job."""

from __future__ import annotations

import statistics
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

RUN = "long@1790000000.000"
N_MOVE = 40
N_JOB_PAGE = 5
SETTLE_S = 8.0  # until the charts of the nodes that are there have been drawn
# Moves the scrubber as a hand does, and waits for the frame that shows the moment.
MOVED = """async at => {
  const range = document.getElementById('travel-at'), part = document.getElementById('travel-moment')
  const began = performance.now()
  range.value = at
  const shown = new Promise(done => new MutationObserver((_, watch) => {
    watch.disconnect()
    requestAnimationFrame(() => setTimeout(done))
  }).observe(part, {childList: true}))
  range.dispatchEvent(new Event('input', {bubbles: true}))
  await shown
  return performance.now() - began
}"""


def on_the_wire(url: str) -> int:
    """Return the bytes of a page as a browser gets it, compressed."""
    asked = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(asked) as answer:
        return len(answer.read())


def past_run(browser: Any, url: str) -> dict[str, Any]:
    """Move through a run of 100,000 points, of which an hour is shown at a time."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.goto(f"{url}history?run={RUN}&span=3600")
    last = float(page.locator("#travel-at").get_attribute("max"))
    took = [page.evaluate(MOVED, last * (i + 1) / (N_MOVE + 1)) for i in range(N_MOVE)]
    page.close()
    return {
        "history_wire_bytes": on_the_wire(f"{url}history?run={RUN}"),
        "history_pan_p50_ms": round(statistics.median(took), 1),
        "history_pan_p95_ms": round(statistics.quantiles(took, n=20)[-1], 1),
    }


def job_pages(
    browser: Any, url: str, cpu_percent: Callable[[float], float], seconds: float
) -> dict[str, Any]:
    """Return what the live page of a job costs the server each second, and several of them."""
    idle, costs, opened = cpu_percent(seconds), [], []
    for n in (1, N_JOB_PAGE):
        while len(opened) < n:
            page = browser.new_page(viewport={"width": 1400, "height": 1000})
            page.goto(f"{url}job?name=job-{len(opened) + 1}")
            opened.append(page)
        page.wait_for_timeout(1000 * SETTLE_S)
        costs.append(cpu_percent(seconds) - idle)
    for page in opened:
        page.close()
    return {
        "job_page_cpu_percent": round(costs[0], 2),
        f"job_pages{N_JOB_PAGE}_cores": round(costs[1] / 100, 3),
    }
