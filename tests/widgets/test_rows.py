"""Results as data: the columns are those of the reference page, as frames and as JSON."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each
from support.conformance.audit import ROW
from support.jobs import builders as b
from support.jobs.past_jobs import past, run
from support.jobs.rehearsals import rehearsal
from support.jobs.replies import LINE, explanation

from dlrover_nb.api.audit import AuditView
from dlrover_nb.api.exports import CheckView, ExportView
from dlrover_nb.api.imports import ImportView
from dlrover_nb.api.views.brain_view import BrainView
from dlrover_nb.api.views.connection_view import ConnectionView
from dlrover_nb.api.views.goals_view import GoalsView
from dlrover_nb.api.views.job_views import (
    DecisionView,
    HistoryView,
    JobsView,
    LogsView,
    Note,
    PlansView,
    RunsView,
    ScoresView,
    ShardsView,
    Shown,
    StatusView,
    SubmittedView,
    TextView,
    WhatIfView,
    WhyView,
)
from dlrover_nb.api.views.lab_view import LabView
from dlrover_nb.api.views.load_view import LoadView
from dlrover_nb.api.views.page_view import PageView
from dlrover_nb.api.views.rehearsal_view import RehearsalView
from dlrover_nb.api.views.staleness_view import StalenessView
from dlrover_nb.api.views.stragglers_view import MitigationsView, StragglersView
from dlrover_nb.api.views.unmanaged_view import UnmanagedJobView
from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.core.export.imported import Imported
from dlrover_nb.core.history import scoreboard
from dlrover_nb.core.history.stores.load_series import LoadPoint
from dlrover_nb.core.lab import Contender, LabFile, Workload, run_lab
from dlrover_nb.core.straggler.monitor import MonitorSettings, NodeTimes
from dlrover_nb.core.straggler.review import Review
from dlrover_nb.core.structs.cluster.cluster_access import Allowed, ClusterAccess
from dlrover_nb.core.structs.cluster.cluster_load import Amount, ClusterLoad, MachineLoad
from dlrover_nb.core.structs.cluster.unmanaged import UnmanagedJob
from dlrover_nb.core.structs.decisions.actions import KillRestart, Proposed
from dlrover_nb.core.structs.decisions.audited import AuditedCommand
from dlrover_nb.core.structs.decisions.goals import answer, read_goals
from dlrover_nb.core.structs.decisions.people import AccessRole
from dlrover_nb.core.structs.decisions.query_answers import Weighed
from dlrover_nb.core.structs.plan.bounds import Pins, Quota
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.queued_jobs import QueuePlace
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.batch_cost import BatchCost
from dlrover_nb.core.structs.training.shards import Purpose, QuarantinedShard, SkippedBatch
from dlrover_nb.core.structs.training.stragglers import NodeErrors, Pace, Straggler
from dlrover_nb.core.structs.views.brain import BrainRound, JobShare, QueuedJob
from dlrover_nb.core.structs.views.schema import ColumnSchema, DataSchema, Use
from dlrover_nb.core.structs.views.summary import summarize
from dlrover_nb.dashboard.api_v1.tokens import Token
from dlrover_nb.magics.verbs.programs import TokensView
from dlrover_nb.widgets.rows.job_columns import JOBS
from dlrover_nb.widgets.rows.tables import Columns, listed

SNAPSHOT = b.snapshot(
    quarantined=(QuarantinedShard(Purpose.TRAIN, 7, 0, 0, 512, 9, ("worker-0",)),),
    stragglers=(b.straggler(),),
    mitigations=(b.mitigation(),),
    node_errors=(NodeErrors("worker-1", Role.WORKER, 1, 0, 600.0),),
    skipped_batches=(SkippedBatch(7, 64, 512, 576, "its loss is nan", 1, (520,)),),
)
SNAPSHOT = replace(
    SNAPSHOT,
    nodes=tuple(
        replace(each, last=replace(each.last, batch_cost=BatchCost(0.01, 0.001, 300)))
        for each in SNAPSHOT.nodes
    ),
)
SCHEMA = DataSchema((ColumnSchema("clicked", Use.LABEL, "int64", 0.0, 2),), (), 1000, 900, 100, 1000, 0, 0.5)
PAGE = (Path(__file__).parents[2] / "docs/reference/results.md").read_text()
REVIEW = Review(
    MonitorSettings(),
    (NodeTimes("worker-0", Role.WORKER, 0.6, 0.01, 400.0),),
    (Straggler("worker-0", Role.WORKER, Pace.PERSISTENT, 0.6, 0.2, 600.0, 1.79e9, "own work"),),
    (Proposed(KillRestart("worker-0", Role.WORKER), "it is slow"),),
    "antdt-nd",
)
RESULTS: dict[str, Shown] = {
    "jobs": JobsView((summarize(SNAPSHOT),)),
    "unmanaged": UnmanagedJobView(UnmanagedJob("raysubmit_x7", "Ray job", "RUNNING"), lambda *_: ()),
    "status": StatusView(SNAPSHOT),
    "submit": SubmittedView(SNAPSHOT.spec, schema=SCHEMA),
    "plans": PlansView(SNAPSHOT),
    "why": WhyView(explanation(), SNAPSHOT),
    "whatif": WhatIfView((Weighed(b.BETTER_PLAN, None, "no room"),), SNAPSHOT),
    "decision": DecisionView(SNAPSHOT.decisions[0], SNAPSHOT),
    "logs": LogsView("ctr", (LINE,)),
    "stragglers": StragglersView(SNAPSHOT, REVIEW),
    "mitigations": MitigationsView(SNAPSHOT),
    "staleness": StalenessView(SNAPSHOT, b.series()),
    "shards": ShardsView(SNAPSHOT),
    "goals": GoalsView(SNAPSHOT, answer(read_goals("≤ 1 $/h", 0.0), ())),
    "brain": BrainView(
        BrainRound(
            "here",
            "one",
            1,
            2,
            3.0,
            (JobShare("ads", "ada", b.NOW_PLAN, b.BETTER_PLAN, Quota(8.0), "Needs 2 more cores."),),
            (("feed", "a user decides"),),
            queue=(QueuedJob("late", "bob", b.NOW_PLAN, None, QueuePlace(1, 1, "needs 2 cores")),),
        )
    ),
    "runs": RunsView((run(),)),
    "history": HistoryView(past()),
    "audit": AuditView((AuditedCommand(1, ROW),)),
    "score": ScoresView(scoreboard({"quick-start": past().outcomes})),
    "connect": ConnectionView(
        "Ray", Capacity((NodeShape(2, 8192, 3),)), ClusterAccess((), (Allowed("a", "b", ("c",)),))
    ),
    "cluster": LoadView(
        "Ray",
        ClusterLoad((MachineLoad("a", Amount(4, 8192), (("ctr", Amount(1, 512)),)),)),
        (LoadPoint("", 1.0, Amount(4, 8192), Amount(1, 512), Amount(3, 7680), None),),
    ),
    "export": ExportView("job.yaml", "kind: ElasticJob"),
    "check": CheckView("job.yaml", ("ElasticJob",)),
    "import": ImportView("job.yaml", Imported("ElasticJob", "ctr", None, b.BETTER_PLAN, Pins()), SNAPSHOT),
    "lab": LabView(
        run_lab(LabFile(workload=Workload(jobs=2), contenders=(Contender("fixed-plan"),), seeds=(0,)))
    ),
    "rehearsal": RehearsalView(rehearsal()),
    "page": PageView("Dashboard", "http://127.0.0.1:8080"),
    "tokens": TokensView((Token("f00d", "ada", AccessRole.VIEWER, "ml", 1.8e9),), 1.7e9),
    "note": Note("Deleted ctr"),
    "help": TextView("Help", "text"),
}


def documented() -> dict[str, set[str]]:
    """Return the keys of each result, and of its tables as ``result/table``, as the page lists them."""
    found: dict[str, list[str]] = {}
    result = table = ""
    for line in PAGE.splitlines():
        if heading := re.match(r"(##+) (\w+)", line):
            result, table = (heading[2], "") if heading[1] == "##" else (result, heading[2])
        elif row := re.match(r"\| ([`*].*?) \|", line):
            where = f"{result}/{table}" if table else result
            found.setdefault(where, []).extend(re.findall(r"`\w+`|\*\w+\*", row[1]))
    return {where: set(_expanded(keys, found)) for where, keys in found.items()}


def _expanded(keys: list[str], found: dict[str, list[str]]) -> list[str]:
    """Put the keys of a group, such as *plan*, in its place."""
    groups = {f"*{where.removeprefix('Columns/')}*": keys for where, keys in found.items()}
    return [k for key in keys for k in (_expanded(groups[key], found) if key in groups else [key.strip("`")])]


def declared() -> dict[str, set[str]]:
    """Return the same from the code."""
    found: dict[str, set[str]] = {}
    for result, shown in RESULTS.items():
        tables = shown.tables()
        if tables.head is not None:
            found[result] = set(tables.head.columns)
        for name, table in tables.tables.items():
            found[result if tables.head is None else f"{result}/{name}"] = set(table.columns)
    return found


SHARED = {
    "history/proposals": "plans/proposals",
    "history/outcomes": "plans/outcomes",
    "history/mitigations": "mitigations/mitigations",
    "score/outcomes": "plans/outcomes",
}


def test_the_reference_lists_every_key_and_no_other() -> None:
    page, code = documented(), declared()
    page |= {where: page[elsewhere] for where, elsewhere in SHARED.items()}
    assert {where: keys for where, keys in page.items() if not where.startswith("Columns/")} == code


def test_every_kind_of_result_is_on_the_page() -> None:
    """A new one is added to `RESULTS`, and so to the page."""
    product = {each.__name__ for each in Shown.__subclasses__() if each.__module__.startswith("dlrover_nb.")}
    assert product == {type(shown).__name__ for shown in RESULTS.values()}


@for_each("name", RESULTS)
def test_json_and_frames_hold_the_documented_columns(name: str) -> None:
    tables = RESULTS[name].tables()
    content = json.loads(tables.json())
    first = content[0] if tables.head is None else content
    assert set(first) == declared()[name] | (set() if tables.head is None else set(tables.tables))
    for table in (None, *tables.tables):
        frame = tables.frame(table)
        assert isinstance(frame, pd.DataFrame)
        assert len(frame)
        assert not any(type(cell).__module__.startswith("dlrover_nb") for cell in frame.to_numpy().flat)


def test_the_page_says_which_table_is_the_main_one() -> None:
    every = {name: shown.tables() for name, shown in RESULTS.items()}
    main = {f"{name}/{t.main}" for name, t in every.items() if t.head is not None and t.main}
    said = {
        f"{part.split(None, 1)[0]}/{m}"
        for part in PAGE.split("\n## ")
        for m in re.findall(r"### (\w+) \(main\)", part)
    }
    assert said == main


def test_an_empty_list_still_has_its_columns() -> None:
    assert list(JobsView(()).to_frame().columns) == list(JOBS.names)
    assert JobsView(()).tables().json() == b"[]"


@given(st.lists(st.floats() | st.none()))
def test_what_is_not_a_number_is_null_in_json(values: list[float | None]) -> None:
    told = json.loads(listed("numbers", Columns[float | None]({"x": lambda x: x}), values).json())
    finite = [v if v is not None and math.isfinite(v) else None for v in values]
    assert [row["x"] for row in told] == finite


def test_a_table_that_is_not_there_is_named_with_those_that_are(error_words) -> None:
    with error_words(NotFoundError):
        StatusView(SNAPSHOT).to_frame("node")


def test_an_ended_job_does_not_change_its_plan() -> None:
    ended = replace(SNAPSHOT, running=None, phase=b.JobPhase.STOPPED)
    assert not StatusView(ended).to_frame()["changing"][0]
