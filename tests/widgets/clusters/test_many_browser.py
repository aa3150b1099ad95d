"""The served view of fifty simulated jobs in headless Chromium: what a person reads, chooses and opens."""

import numpy as np
import pytest
from support.browser.chromium import unnamed
from support.waiting import until

from dlrover_nb.core.backends.simulated.assumptions import simulate
from dlrover_nb.core.simulator.workload import JobSampler
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.widgets.clusters.many import ManyJobs
from dlrover_nb.widgets.live.browser.poller import Poller

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("default"),  # tornado and playwright warn of each other's event loops
    pytest.mark.release,
]

N_JOB = 50
LAST_TIME = """() => Math.max(...[...Bokeh.documents[0]._all_models.values()]
    .filter(m => m.type == 'ColumnDataSource' && 't' in m.data && 'y0' in m.data).map(m => m.data.t.at(-1)))"""


@pytest.fixture
def cluster():
    made = simulate(machines=100, speed=10.0)
    rng, sampler = np.random.default_rng(0), JobSampler(mode=Mode.MANUAL)
    for i in range(N_JOB):
        made.add(sampler.sample(f"job-{i + 1}", rng))
    yield made
    made.shutdown(force=True)


def test_fifty_jobs_are_read_chosen_and_opened(cluster, serve, page):
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(serve(ManyJobs(cluster, Poller()).panel))
    table = page.get_by_role("table", name="Jobs, those that need attention first")
    table.wait_for()
    assert table.get_by_role("row").count() == N_JOB + 1
    until(lambda: "training" in table.aria_snapshot(), what="training in words")
    assert "training" in page.locator("dl").inner_text()
    assert not unnamed(page.locator("body").aria_snapshot())

    first = page.evaluate(LAST_TIME)
    until(lambda: page.evaluate(LAST_TIME) > first, what="a new point")

    page.get_by_label("Job to highlight").select_option("job-7")
    page.get_by_role("button", name="Open job-7").click()
    page.get_by_text("job-7 (simulated)").first.wait_for()
    page.get_by_role("button", name="Something else").wait_for()
    page.get_by_role("button", name="Close the opened job").click()
    until(lambda: page.get_by_role("button", name="Something else").count() == 0, what="closing")

    cluster.job("job-7").stop(why="seen enough")
    until(lambda: "job-7 stopped" in table.aria_snapshot(), what="the end in words")
    assert not errors


def test_the_job_that_was_asked_for_is_open_at_once(cluster, serve, page):
    page.goto(serve(ManyJobs(cluster, Poller(), "job-7").panel))
    page.get_by_text("job-7 (simulated)").first.wait_for()
    page.get_by_role("button", name="Close the opened job").click()
    until(lambda: page.get_by_role("button", name="Something else").count() == 0, what="closing")
