"""An accept on local Ray, by a click on the dashboard's page of the job and by the call of `%dlrover accept`.

For each of two jobs, in turn: the time until the decision is taken, and until its plan is applied.
`dashboard.py` runs it; the click goes through Chromium, the server, the command service, its audit, and the
job's master.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from lengths import end_cleanly

from dlrover_nb.core.commands.requests import Accept
from dlrover_nb.core.connect import connect
from dlrover_nb.core.jobfile import parse_job
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.dashboard.child import start

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.client.handle import JobHandle

LIMIT_S = 240.0
JOB = "name: {name}\nmode: suggest\nepochs: 1000\n"


def until(true: Callable[[], object], what: str) -> Any:
    end_s = time.monotonic() + LIMIT_S
    while not (found := true()):
        if time.monotonic() > end_s:
            raise SystemExit(f"waited {LIMIT_S:g} s for {what}")
        time.sleep(0.02)
    return found


def applied(job: JobHandle, proposal: str) -> bool:
    return any(p.id == proposal and p.status is ProposalStatus.APPLIED for p in job.snapshot().proposals)


def by_click(browser: Any, url: str, job: JobHandle, proposal: str) -> float:
    page = browser.new_page()
    page.goto(f"{url}job?name={job.name}")
    button = page.locator("main").get_by_role("button", name=f"Accept {proposal}", exact=True).first
    button.wait_for()
    page.frame_locator("#live").get_by_role("button", name=f"Accept {proposal}").wait_for()
    page.wait_for_timeout(2000)  # a person reads first
    began_s = time.monotonic()
    button.click()
    until(lambda: job.snapshot().decisions, "the decision")
    took_s = time.monotonic() - began_s
    page.close()
    return took_s


def by_call(job: JobHandle, proposal: str) -> float:
    began_s = time.monotonic()
    job.decide(Accept(proposal))
    return time.monotonic() - began_s


def accept(browser: Any, times: int = 2) -> dict[str, Any]:
    core = connect("ray", None)
    end_cleanly()  # Ray has put its own handler in place
    served = start(["--cluster", "ray"])
    taken: dict[str, list[float]] = {"click": [], "verb": []}
    until_applied: dict[str, list[float]] = {"click": [], "verb": []}
    try:
        for i in range(times):
            for way, took in taken.items():
                job = core.submit(parse_job(JOB.format(name=f"bench-{way}-{i}")))
                proposal = until(lambda job=job: job.snapshot().open_proposal, "a proposal").id
                began_s = time.monotonic()
                if way == "click":
                    took.append(by_click(browser, served.url, job, proposal))
                else:
                    took.append(by_call(job, proposal))
                begun_s = began_s if way == "verb" else time.monotonic() - took[-1]
                until(lambda job=job, proposal=proposal: applied(job, proposal), "the applied plan")
                until_applied[way].append(time.monotonic() - begun_s)
                job.stop()
    finally:
        served.stop()
        core.shutdown(force=True)
    return {
        **{f"accept_{way}_taken_ms": round(1000 * statistics.median(s)) for way, s in taken.items()},
        **{f"accept_{way}_applied_s": round(statistics.median(s), 2) for way, s in until_applied.items()},
    }
