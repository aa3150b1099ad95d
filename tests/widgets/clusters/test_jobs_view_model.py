"""What the view of many jobs knows of a cluster that answers, is silent, and whose jobs come and go."""

import math
from dataclasses import replace

import panel as pn
import pytest
from bokeh.models import Plot
from support.jobs.builders import NOW_PLAN
from support.waiting import until

from dlrover_nb.core.errors import BackendError, NotFoundError
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.views.snapshot import SeriesChunk
from dlrover_nb.core.structs.views.summary import JobSummary
from dlrover_nb.widgets.clusters.many.jobs_view_model import FORGET_S, JobsViewModel
from dlrover_nb.widgets.clusters.many.view import ManyJobs
from dlrover_nb.widgets.live.browser.poller import Poller


class FakeCluster:
    """A cluster whose jobs a test moves by hand."""

    description = "a test cluster"

    def __init__(self, *names):
        self.told = {name: self.job_of(name) for name in names}
        self.error = ""

    def job_of(self, name):
        return JobSummary(
            name, JobPhase.TRAINING, "ada", 10.0, NOW_PLAN, 100.0, 0.5, None, live=True, at_s=60.0
        )

    def capacity(self):
        return Capacity((NodeShape(16.0, 16_384),))

    def live_jobs(self):
        if self.error:
            raise BackendError(self.error)
        return tuple(self.told.values())

    def job(self, name):
        if name not in self.told:
            raise NotFoundError(name)
        return self

    def series(self, _cursor):
        times = [float(t) for t in range(10, 61)]
        return SeriesChunk(1, {"at_s": times, "samples_per_s": [40.0] * len(times)}, {})

    def pass_time(self, seconds=1.0, **changes):
        self.told = {n: replace(job, at_s=job.at_s + seconds, **changes) for n, job in self.told.items()}


@pytest.fixture
def cluster():
    return FakeCluster("ads", "feed")


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def view_model(cluster, clock):
    return JobsViewModel(cluster, monotonic=lambda: clock[0])


def test_each_job_gets_its_history_once_and_a_point_a_tick(cluster, view_model):
    until(lambda: all(y[0] == 40.0 for y in view_model.state().wide.y.values()), what="history")
    cluster.pass_time()
    view_model.fetch()
    wide = view_model.state().wide
    assert wide.t_s[-1] == 61.0
    assert {name: y[-1] for name, y in wide.y.items()} == {"ads": 100.0, "feed": 100.0}
    assert view_model.state().origin_s == 10.0


def test_the_chart_counts_from_the_first_start_also_where_time_is_simulated(cluster):
    cluster.told = {name: replace(job, simulated=True) for name, job in cluster.told.items()}
    assert JobsViewModel(cluster).state().origin_s == 10.0


def test_no_time_of_the_chart_is_before_its_origin(cluster):
    late = replace(cluster.told["ads"], started_at_s=90.0)  # its master's clock runs ahead
    cluster.told = {"ads": late}
    state = JobsViewModel(cluster).state()
    assert min(state.wide.since(state.origin_s).t_s) >= 0


def test_a_job_with_a_clock_ahead_neither_shifts_the_others_nor_stops_the_chart_when_it_leaves(
    cluster, clock
):
    ahead = replace(cluster.told["ads"], at_s=3660.0, started_at_s=3610.0)
    cluster.told["ads"] = ahead
    view_model = JobsViewModel(cluster, monotonic=lambda: clock[0])
    assert view_model.state().origin_s == 3610.0
    until(lambda: view_model.state().wide.y["feed"][0] == 40.0, what="history")
    n_row = len(view_model.state().wide.t_s)
    for _ in range(3):
        cluster.pass_time()
        view_model.fetch()
    del cluster.told["ads"]
    for _ in range(3):
        cluster.pass_time()
        view_model.fetch()
    wide = view_model.state().wide
    assert wide.t_s[n_row:] == [3661.0, 3662.0, 3663.0, 3664.0, 3665.0, 3666.0]
    assert wide.y["feed"][n_row:] == [100.0] * 6


def test_jobs_come_and_go(cluster, view_model, clock):
    cluster.told["mail"] = cluster.job_of("mail")
    cluster.pass_time()
    view_model.fetch()
    assert set(view_model.state().wide.y) == {"ads", "feed", "mail"}
    del cluster.told["ads"]
    clock[0] += FORGET_S + 1
    cluster.pass_time()
    view_model.fetch()
    assert {heard.summary.name for heard in view_model.state().jobs} == {"feed", "mail"}
    cluster.pass_time()
    view_model.fetch()
    assert set(view_model.state().wide.y) == {"feed", "mail"}


def test_a_job_whose_master_is_silent_is_stale_and_its_line_has_a_gap(cluster, view_model, clock):
    silent = cluster.told["ads"]
    clock[0] += 14
    cluster.pass_time()
    cluster.told["ads"] = silent
    view_model.fetch()
    ages = {heard.summary.name: heard.is_stale for heard in view_model.state().jobs}
    assert ages == {"ads": True, "feed": False}
    wide = view_model.state().wide
    assert math.isnan(wide.y["ads"][-1])
    assert wide.y["feed"][-1] == 100.0


def test_an_unreachable_cluster_is_told_and_recovers(cluster, view_model, clock):
    cluster.error = "Ray cannot be reached; connect again"
    clock[0] += 7
    view_model.fetch()
    told = view_model.state()
    assert (told.error, told.silent_s) == (cluster.error, 7.0)
    assert len(told.jobs) == 2
    cluster.error = ""
    view_model.fetch()
    assert view_model.state().error == ""


def test_a_cluster_that_never_answered_is_an_error_at_once(cluster):
    cluster.error = "Ray cannot be reached; connect again"
    with pytest.raises(BackendError, match="connect again"):
        ManyJobs(cluster, Poller())


def test_a_screen_highlights_and_opens_what_is_chosen(cluster):
    layout = ManyJobs(cluster, Poller()).panel()
    (job,), (opens, closes) = layout.select(pn.widgets.Select), layout.select(pn.widgets.Button)
    shown = [pane.object for pane in layout.select(pn.pane.Bokeh)]
    assert job.options == ["(none)", "ads", "feed"]
    assert opens.disabled
    job.value = "feed"
    assert opens.label == "Open feed"
    lines = [line for model in shown if isinstance(model, Plot) for line in model.renderers]
    assert [line.name for line in lines if line.glyph.line_width > 2] == ["feed"]
    del cluster.told["feed"]
    opens.clicks += 1
    assert any("feed" in model.text for model in shown if model.html_attributes.get("role") == "status")
    assert closes.disabled
