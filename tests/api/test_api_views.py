import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

from support.cases import for_each
from support.jobs import builders as b
from support.waiting import LIMIT_S

import dlrover_nb
from dlrover_nb.api.exports import ExportView
from dlrover_nb.api.views.connection_view import ConnectionView
from dlrover_nb.api.views.job_views import DecisionView, JobsView, Note, PlansView, ShardsView, StatusView
from dlrover_nb.core.structs.cluster.cluster_access import Allowed, ClusterAccess
from dlrover_nb.core.structs.decisions.decisions import Decision, ProposalKind, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.shards import SkippedBatch
from dlrover_nb.core.structs.views.summary import JobSummary


def views(hostile: str = ""):
    snapshot = b.snapshot(message=hostile, story=(hostile,))
    decision = Decision(Verdict.ACCEPT, f"ada{hostile}", b.START_S, "p2", why=hostile, id="d2")
    job = JobSummary(
        "quick-start",
        JobPhase.TRAINING,
        f"ada{hostile}",
        b.START_S,
        b.NOW_PLAN,
        26_947.4,
        0.439,
        "p2",
        live=True,
    )
    return {
        "jobs": JobsView((job,)),
        "no jobs": JobsView(()),
        "status": StatusView(snapshot, b.series(nodes=(f"worker-0{hostile}", "ps-0"))),
        "status without series": StatusView(snapshot),
        "plans": PlansView(snapshot),
        "decision": DecisionView(decision, snapshot),
        "export": ExportView("job.yaml", f"kind: ElasticJob\nname: {hostile}"),
        "note": Note(f"Stopped {hostile}", "all nodes are gone"),
        "connection": ConnectionView(
            f"Ray on this machine {hostile}",
            Capacity((NodeShape(2, 8192, 3),)),
            ClusterAccess((("you are", hostile),), (Allowed(hostile, hostile, (hostile,)),), hostile),
        ),
    }


VIEWS = views()


def test_batches_that_were_skipped_are_listed_with_their_rows():
    batch = SkippedBatch(3, 512, 20_480, 30_719, "its loss is nan", 2, (20_500, 30_000))
    text = " ".join(str(ShardsView(b.snapshot(skipped_batches=(batch,)))).split())
    assert "Batches that were skipped" in text
    assert "20,480 to 30,719" in text
    assert "its loss is nan; the model gives no finite number for rows 20500, 30000" in text
    assert "Batches that were skipped" not in str(ShardsView(b.snapshot()))


class Words(HTMLParser):
    """Collects the text of HTML outside of SVG."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self._svg = 0
        self.feed(html)

    def handle_starttag(self, tag, attrs):  # noqa: ARG002 - its signature
        self._svg += tag == "svg"

    def handle_endtag(self, tag):
        self._svg -= tag == "svg"

    def handle_data(self, data):
        if not self._svg:
            self.words.append(data)


def numbers(text: str) -> list[str]:
    return sorted(set(re.findall(r"\d[\d,.]*", text)))


@for_each("name", VIEWS)
def test_text_holds_the_numbers_that_the_html_holds(name):
    bundle = VIEWS[name]._repr_mimebundle_()
    assert numbers(bundle["text/plain"]) == numbers(" ".join(Words(bundle["text/html"]).words))


@for_each("name", VIEWS)
def test_text_fits_a_terminal(name):
    assert max(map(len, str(VIEWS[name]).splitlines())) <= 100


@for_each("name", VIEWS)
def test_html_needs_no_network_no_script_and_no_style_sheet(name):
    html = VIEWS[name]._repr_mimebundle_()["text/html"]
    assert not re.search(r"<(script|link|style|img|iframe)", html)
    assert not re.search(r"(src|href|url)\s*[=(]\s*[\"']?https?:", html)


@for_each("name", VIEWS)
def test_names_from_the_cluster_are_escaped(name):
    html = views(b.HOSTILE)[name]._repr_mimebundle_()["text/html"]
    assert "<script" not in html


def test_status_says_which_limits_are_enforced():
    text = str(VIEWS["status"])
    assert "memory advisory" in text
    assert "does not hold the node to its limit" in text


def test_status_names_the_exact_commands_for_an_open_proposal():
    assert "%dlrover apply quick-start p2" in str(VIEWS["status"])


def test_status_without_a_proposal_has_no_hint():
    assert "%dlrover" not in str(StatusView(b.snapshot(proposals=())))


def test_exploring_proposals_say_so_in_words():
    snapshot = b.snapshot(proposals=(b.proposal(kind=ProposalKind.EXPLORE),))
    status, plans = (" ".join(str(view).split()) for view in (StatusView(snapshot), PlansView(snapshot)))
    assert "Try adding one worker" in status
    assert "An experiment: it shows what such plans bring." in status
    assert "Open proposal p1: experiment Try adding one worker" in plans.replace("- ", "").replace("-", "")


def test_a_coefficient_that_the_data_does_not_determine_says_so():
    assert "not measurable yet" in str(VIEWS["plans"])


def test_a_job_that_just_started_has_views_too():
    young = b.snapshot(fit=None, front=None, curves=(), memory=(), proposals=(), decisions=(), outcomes=(),
                       markers=(), nodes=(), running=None, loss=None, evaluation=None, story=())  # fmt: skip
    assert "No proposal yet" in str(PlansView(young))
    assert "starting with" in str(StatusView(young))


@for_each(
    "decision",
    [
        Decision(Verdict.SCALE, "ada", b.START_S, plan=b.plan(2, 1), id="d3"),
        Decision(Verdict.OVERRIDE, "ada", b.START_S, "p2", plan=b.plan(2, 1), id="d3"),
        Decision(Verdict.MODE, "ada", b.START_S, mode=Mode.AUTO, id="d3"),
        Decision(Verdict.REJECT, "ada", b.START_S, "p1", id="d3"),
    ],
)
def test_no_decision_is_called_applied_before_the_plan_runs(decision):
    assert "applied" not in str(DecisionView(decision, b.snapshot())).replace("not applied yet", "")


def test_memory_near_its_limit_warns():
    assert "Warning: a ps is full in 1.72 min" in str(VIEWS["status"])
    assert next(m for m in b.snapshot().memory if m.role is Role.PS).full_in_s == 103.0


def test_formatters_import_neither_panel_nor_bokeh():
    code = "import sys, dlrover_nb.api.views.job_views; print([m for m in ('panel', 'bokeh', 'ray') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_job_without_an_answer_says_why_and_is_not_called_past():
    waits = "its master waits: ErrImagePull: no such host"
    job = JobSummary(
        "ads", JobPhase.STARTING, "ada", b.START_S, None, 0.0, 0.0, None, live=False, message=waits
    )
    gone = replace(job, name="old", phase=JobPhase.SUCCEEDED, message="")
    text = str(JobsView((job,)))
    assert "starting (no answer)" in text
    assert f"No answer from ads: {waits}" in " ".join(text.split())
    assert "(past)" not in text
    assert "succeeded (past)" in str(JobsView((gone,)))
    assert "No answer" not in str(JobsView((gone,)))


def test_the_plans_of_a_large_cluster_are_a_page_of_text():
    """Of some hundred plans and values, text names those around the present plan and those that have a name."""
    cluster = dlrover_nb.connect("sim", machines=100, speed=600)
    try:
        job = cluster.submit("name: wide", epochs=400)
        job.wait(until="proposal", timeout_s=LIMIT_S)
        plans = job.plans()
    finally:
        cluster.shutdown(force=True)
    text = str(plans)
    assert len(text.splitlines()) < 150
    assert {"proposal", "fastest"} <= set(text.split())
    assert plans.view().html().count("<tr") > 300
