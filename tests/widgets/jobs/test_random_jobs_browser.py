"""Saved views and reports of random jobs at every width: no two labels overlap, nothing is cut off.

The jobs are simulated, each cluster is stopped at another moment, and what a view shows is what real controllers
made of them. A theme changes no place of a label, so all are looked at in one.
"""

import numpy as np
import pytest
from support.browser.looks import cut_off, overlapping
from support.browser.sweep import WIDTHS_PX

from dlrover_nb.core.backends.simulated.assumptions import simulate
from dlrover_nb.core.simulator.workload import JobSampler
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.widgets.past.html_report import report_html

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("default"),  # playwright's event loop warns of itself
]

N_JOB = 10  # of a cluster
NAMES = ("ads", "click-through-rate-of-banners-on-the-first-page", "r2", "ranking-v2-of-the-evening", "x")


def random_jobs(seed):
    """Give the snapshots and rows of the jobs of a cluster at some moment."""
    rng = np.random.default_rng(seed)
    cluster = simulate(machines=20, speed=1e-6, seed=seed)
    modes = list(Mode)
    jobs = [
        JobSampler(hours=(float(rng.uniform(0.2, 4.0)), 0.6), mode=modes[i % len(modes)]).sample(
            f"{NAMES[i % len(NAMES)]}-{i}", rng
        )
        for i in range(N_JOB)
    ]
    try:
        handles = cluster.add_all(jobs)
        cluster.run_ahead(float(rng.choice([90.0, 600.0, 1800.0, 5400.0]) * rng.uniform(0.7, 1.3)))
        for handle in handles:
            yield handle.snapshot(), handle.series()
    finally:
        cluster.shutdown(force=True)


@pytest.mark.release_variants(*map(str, range(1, 20)))
@pytest.mark.more
@pytest.mark.parametrize("seed", range(20))
def test_no_labels_of_a_random_job_overlap_at_any_width(seed, page):
    faults = []
    for snapshot, series in random_jobs(seed):
        page.set_content(report_html(snapshot, series))
        page.evaluate("() => document.querySelectorAll('details').forEach(each => { each.open = true })")
        view = page.locator("main")
        for width in WIDTHS_PX:
            page.set_viewport_size({"width": width, "height": 1000})
            where = f"{snapshot.spec.name} ({snapshot.phase}) at {width} px"
            faults += [f"{where}: {what}" for what in (*cut_off(view), *overlapping(view))]
    assert not faults, "\n".join(faults)
