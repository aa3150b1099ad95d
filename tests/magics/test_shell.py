"""`%dlrover` in a fresh shell: what each verb asks of the cluster, what it returns, how mistakes look."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from IPython.core.error import UsageError
from support.cases import for_each
from support.jobs import builders
from support.jobs.cluster_double import BETTER, Link, MemoryCluster

from dlrover_nb.api.cluster import Cluster
from dlrover_nb.api.exports import ExportView
from dlrover_nb.api.job import NEW_S, Job
from dlrover_nb.api.views.job_views import DecisionView, JobsView, Note, PlansView, StatusView
from dlrover_nb.api.views.stragglers_view import MitigationsView
from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat, Mode
from dlrover_nb.core.structs.plan.resources import Role, RolePlan
from dlrover_nb.core.structs.training.shards import Purpose, QuarantinedShard, ShardAction, ShardChoice
from dlrover_nb.magics.shell import explain_verbs, loaded
from dlrover_nb.widgets.live.browser.poller import Poller

if TYPE_CHECKING:
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell


class Magic:
    """Types lines into a shell that is connected and runs one job."""

    def __init__(self, shell: InteractiveShell, memory: MemoryCluster) -> None:
        self.shell, self.memory = shell, memory

    def __call__(self, line: str, cell: str | None = None) -> Any:
        if cell is None:
            return self.shell.run_line_magic("dlrover", line)
        return self.shell.run_cell_magic("dlrover", line, cell)

    def refused(self, line: str, cell: str | None = None) -> str:
        with pytest.raises(UsageError) as caught:
            self(line, cell)
        return str(caught.value)

    @property
    def link(self) -> Link:
        return self.memory.links["ctr"]


@pytest.fixture
def magic(shell: InteractiveShell, memory: MemoryCluster) -> Magic:
    magic = Magic(shell, memory)
    magic("connect ray")
    magic("submit ctr")
    return magic


def test_loading_twice_changes_nothing_and_unloading_takes_all_away(shell: InteractiveShell) -> None:
    before = loaded(shell)
    shell.run_line_magic("load_ext", "dlrover_nb")
    shell.run_line_magic("reload_ext", "dlrover_nb")
    assert before is not None
    assert [m for m in shell.Completer.custom_matchers if "dlrover" in m.matcher_identifier] == [
        loaded(shell).matcher  # type: ignore[union-attr]
    ]
    shell.run_line_magic("unload_ext", "dlrover_nb")
    assert loaded(shell) is None
    assert shell.find_line_magic("dlrover") is None
    assert not [m for m in shell.Completer.custom_matchers if "dlrover" in m.matcher_identifier]


def test_loading_imports_nothing_heavy() -> None:
    code = (
        "import sys; from IPython.core.interactiveshell import InteractiveShell as S; before = set(sys.modules);"
        "s = S(); s.run_line_magic('load_ext', 'dlrover_nb');"
        "print(sorted({m.split('.')[0] for m in set(sys.modules) - before} &"
        " {'ray', 'panel', 'bokeh', 'torch', 'kubernetes', 'pandas', 'pyarrow', 'scipy', 'jsonschema'}))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_the_command_line_does_without_ipython() -> None:
    code = "import sys; import dlrover_nb.cli; sys.exit('IPython' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_verb_before_connect_is_refused_with_the_way_out(shell: InteractiveShell, error_words) -> None:
    with error_words(UsageError):
        shell.run_line_magic("dlrover", "jobs")


def test_connect_passes_its_arguments_on(shell: InteractiveShell, memory: MemoryCluster) -> None:
    shown = shell.run_line_magic("dlrover", "connect ray 127.0.0.1:6379 --cpus 2")
    assert isinstance(shown, Cluster)
    assert "a cluster in memory" in str(shown)
    assert "8 cores" in str(shown)
    assert memory.connected == [("ray", "127.0.0.1:6379", 2.0)]
    with pytest.raises(UsageError, match="cannot connect to 'slurm'"):
        shell.run_line_magic("dlrover", "connect slurm")


def test_kubernetes_is_reached_by_a_kubeconfig_and_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, error_words
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    for kind in ("kubernetes", "k8s"):
        with error_words(BackendError):
            connect(kind)


def test_submit_by_flags(magic: Magic, tmp_path: Path) -> None:
    job = magic(
        "submit two --workers 2 --ps-cpu 0.5 --mode auto --data day1.parquet --label click --epochs 3"
    )
    spec = magic.memory.links["two"].state.spec
    assert isinstance(job, Job)
    assert (spec.plan.worker.count, spec.plan.ps.cpu, spec.mode, spec.n_epoch) == (2, 0.5, Mode.AUTO, 3)
    assert (spec.data.format, spec.data.path) == (DataFormat.PARQUET, str(tmp_path / "day1.parquet"))
    assert spec.owner
    magic("submit far --format parquet --data s3://bucket/day1")
    assert magic.memory.links["far"].state.spec.data.path == "s3://bucket/day1"


def test_submit_by_a_cell_and_flags_win(magic: Magic) -> None:
    magic("submit --epochs 2", "name: yam\nepochs: 7\nplan:\n  worker: {count: 3}\n")
    spec = magic.memory.links["yam"].state.spec
    assert (spec.n_epoch, spec.plan.worker.count) == (2, 3)


def test_submit_by_a_file_whose_data_lies_beside_it(magic: Magic, tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "ctr.yaml").write_text("name: filed\ndata: {path: day1.parquet, label: click}\n")
    magic("submit --file jobs/ctr.yaml --set model.embedding_dim=8")
    spec = magic.memory.links["filed"].state.spec
    assert (spec.data.path, spec.model.embedding_dim) == (str(folder / "day1.parquet"), 8)


def test_a_variable_of_the_notebook_can_be_used(magic: Magic, tmp_path: Path) -> None:
    (tmp_path / "a b.yaml").write_text("name: spaced\n")
    magic.shell.user_ns["path"] = "a b.yaml"
    magic('submit --file "{path}"')
    assert "spaced" in magic.memory.links


def test_the_job_can_be_assigned_awaited_and_steered(magic: Magic) -> None:
    magic.shell.run_cell("j = %dlrover attach ctr")
    job = magic.shell.user_ns["j"]
    assert isinstance(job.status(), StatusView)
    assert isinstance(job.plans(), PlansView)
    assert job.snapshot().spec.name == job.name == "ctr"
    assert {"accept", "scale", "status", "stop"} < set(dir(job))
    magic.link.end(JobPhase.SUCCEEDED)

    async def wait() -> Any:
        return await job

    assert asyncio.run(wait()).phase is JobPhase.SUCCEEDED


def test_a_new_job_shows_itself_without_asking_its_master(
    magic: Magic, monkeypatch: pytest.MonkeyPatch
) -> None:
    magic.link.on_snapshot = lambda: pytest.fail("the master may not be up yet")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    job = Job(magic.memory.job("ctr"), Poller(), Note("Submitted ctr"))
    assert "Submitted ctr" in job._repr_mimebundle_()["text/plain"]
    magic.link.on_snapshot = lambda: None
    monkeypatch.setattr(time, "monotonic", lambda: now + NEW_S)
    assert "Job ctr: training" in job._repr_mimebundle_()["text/plain"]


def test_a_job_whose_master_is_gone_says_so(magic: Magic) -> None:
    def gone() -> None:
        raise BackendError("its master does not answer")

    job = magic("attach ctr")
    magic.link.on_snapshot = gone
    assert "its master does not answer" in job._repr_mimebundle_()["text/html"]
    assert repr(job) == "Job('ctr')"


def test_lists_and_views_are_returned_and_nothing_is_printed(
    magic: Magic, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = {"jobs": JobsView, "status": StatusView, "status ctr;": StatusView, "plans": PlansView}
    for line, kind in kinds.items():
        shown = magic(line)
        assert isinstance(shown, kind)
        assert set(shown._repr_mimebundle_()) == {"text/plain", "text/html"}
    assert "%dlrover VERB" in magic("help")._repr_mimebundle_()["text/plain"]
    assert "--holdout" in str(magic("submit --help"))
    assert capsys.readouterr() == ("", "")


def test_help_is_the_docstring(shell: InteractiveShell) -> None:
    told = shell.object_inspect("%dlrover")
    assert "apply    accept a proposal" in told["docstring"]


@for_each(
    "text",
    [
        "%dlrover scale?",
        "%dlrover  scale ??\n",
        "%dlrover apply --workers?",
        "\n%%dlrover scale?\n",
        "  %dlrover scale?",
    ],
)
def test_a_verb_with_a_question_mark_is_explained(shell: InteractiveShell, text: str) -> None:
    assert "--worker-cpu CORES" in str(shell.run_cell(text).result)


def test_other_lines_with_a_question_mark_are_left_alone(shell: InteractiveShell) -> None:
    for text in ('"""\n%dlrover scale?\n"""\n', "%dlrover?\n", "%dlrover accept --why ok?\n", "x = 1\n"):
        lines = text.splitlines(keepends=True)
        assert explain_verbs(lines) == lines
    shell.run_line_magic("unload_ext", "dlrover_nb")
    assert explain_verbs not in shell.input_transformers_cleanup


def test_accept_without_an_id_takes_the_proposal_that_was_shown(magic: Magic, words) -> None:
    magic.link.propose(1)
    magic("plans")
    magic.link.propose(2)
    assert magic.refused("accept") == words
    magic("status")
    shown = magic("accept --why 'fast enough'")
    assert isinstance(shown, DecisionView)
    decision = magic.link.decisions[-1]
    assert (decision.verdict, decision.proposal, decision.why, decision.by) == (
        Verdict.ACCEPT,
        "p2",
        "fast enough",
        "ada",
    )


def test_accept_without_an_id_takes_the_open_proposal_where_none_was_shown(magic: Magic) -> None:
    magic.link.propose(1)
    magic("accept")
    assert magic.link.decisions[-1].proposal == "p1"


def test_accept_and_override_with_nothing_open_say_what_else_to_do(magic: Magic, words) -> None:
    for line in ("accept", "override --ps 2"):
        assert magic.refused(line) == words
    assert magic.link.decisions == []


def test_reject_override_scale_and_mode_make_their_decisions(magic: Magic) -> None:
    magic.link.propose(1)
    magic("reject ctr p1 --why no")
    magic("override p1 --workers 3")
    magic("scale --ps 2 --ps-cpu 1")
    magic("mode auto")
    reject, override, scale, mode = magic.link.decisions
    plan = magic.link.state.target
    assert (reject.verdict, reject.proposal, reject.why) == (Verdict.REJECT, "p1", "no")
    assert (override.proposal, override.plan) == ("p1", replace(plan, worker=replace(plan.worker, count=3)))
    assert (scale.proposal, scale.plan) == (None, replace(plan, ps=RolePlan(2, 1.0, plan.ps.memory_mib)))
    assert mode.mode is Mode.AUTO


def elastic_job(text: str) -> dict[str, Any]:
    """Return the ElasticJob of an exported file."""
    (found,) = [each for each in yaml.safe_load_all(text) if each["kind"] == "ElasticJob"]
    return found


def test_export_shows_or_writes_the_plan(magic: Magic, tmp_path: Path, words) -> None:
    magic.link.propose(1)
    shown = magic("export")
    assert isinstance(shown, ExportView)
    assert shown.path is None
    assert elastic_job(shown.text)["spec"]["replicaSpecs"]["worker"]["replicas"] == 1
    magic("export ctr --plan p1 -o job.yaml --image r/i:2 --namespace ads")
    document = elastic_job((tmp_path / "job.yaml").read_text())
    roles = document["spec"]["replicaSpecs"]
    assert roles["worker"]["replicas"] == BETTER.worker.count
    assert roles["dlrover-master"]["template"]["spec"]["containers"][0]["image"] == "r/i:2"
    assert document["metadata"]["namespace"] == "ads"
    assert "90 % band" in document["metadata"]["annotations"]["dlrover-nb/predicted-samples-per-s"]
    assert "exists already; use --force" in magic.refused("export -o job.yaml")
    assert magic.refused("export --plan p7") == words
    assert "metadata/namespace" in magic.refused("export --namespace Not_One")


def test_the_exported_decision_is_the_one_for_that_plan(magic: Magic) -> None:
    magic.link.propose(1)
    magic("accept p1 --why go")
    magic.link.state = replace(magic.link.state, decisions=tuple(magic.link.decisions), target=BETTER)
    notes = elastic_job(magic("export").text)["metadata"]["annotations"]
    assert (notes["dlrover-nb/decision"], notes["dlrover-nb/why"]) == ("d1 accept", "go")


def test_report_is_one_file_without_outside_links(magic: Magic, tmp_path: Path) -> None:
    magic("report -o report.html")
    html = (tmp_path / "report.html").read_text()
    assert "ctr" in html
    assert "<script src" not in html
    assert "exists already" in magic.refused("report -o report.html")


def test_a_job_that_runs_is_deleted_only_by_force(magic: Magic, words) -> None:
    assert magic.refused("delete ctr") == words
    assert "job ctr is deleted" in str(magic("delete ctr --force"))
    assert "no job 'ctr'" in magic.refused("delete ctr")


def test_a_shutdown_updates_the_views_of_an_earlier_connection_to_the_same_cluster(magic: Magic) -> None:
    view = magic("watch")
    magic("connect ray")
    magic.link.end(JobPhase.SUCCEEDED)
    magic("shutdown --force")
    assert "Job ctr: succeeded" in str(view)


def test_stop_and_shutdown(magic: Magic) -> None:
    assert "still run here" in magic.refused("shutdown")
    assert isinstance(magic("stop --why 'good enough'"), StatusView)
    assert magic.link.stopped == ["good enough"]
    assert "has stopped" in magic.refused("scale ctr --workers 2")
    assert "has ended" in str(magic("shutdown --force"))
    assert "not connected" in magic.refused("jobs")


def test_wait_returns_the_end_or_what_it_is_after_the_timeout(magic: Magic) -> None:
    assert magic("wait --timeout 0").snapshot.phase is JobPhase.TRAINING
    magic.link.end(JobPhase.SUCCEEDED)
    assert magic("wait ctr").snapshot.phase is JobPhase.SUCCEEDED


def test_an_interrupted_wait_lets_go_of_the_job(magic: Magic, words) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    magic.link.on_snapshot = interrupt
    assert str(magic("wait")) == words
    assert magic.link.stopped == []


def test_the_job_may_be_left_out_only_while_one_runs(magic: Magic, words) -> None:
    magic("submit other")
    assert magic.refused("status") == words
    magic.link.end(JobPhase.SUCCEEDED)
    assert magic("status").snapshot.spec.name == "other"
    magic.memory.links["other"].end(JobPhase.FAILED)
    assert magic.refused("status") == words
    magic.memory.links.clear()
    assert magic.refused("status") == words


@for_each(
    ("line", "cell", "message"),
    [
        ("submit", "name: x\nplan: {worker: [", "malformed YAML in line 2, column"),
        ("submit", "name: x\nbatchsize: 1", "unknown key 'batchsize'; did you mean batch_size?"),
        ("submit --file a.yaml", "name: x", "the job is given twice"),
        ("status", "name: x", "only submit, plan, lab and rehearse take a cell"),
    ],
)
def test_a_wrong_cell_is_one_usage_error_and_changes_nothing(
    magic: Magic, line: str, cell: str, message: str
) -> None:
    before = magic.link.state
    assert message in magic.refused(line, cell)
    assert magic.link.state is before
    assert magic.link.decisions == []
    assert set(magic.memory.links) == {"ctr"}


def test_a_mistake_shows_no_traceback(magic: Magic, capsys: pytest.CaptureFixture[str]) -> None:
    result = magic.shell.run_cell("%dlrover stauts")
    assert isinstance(result.error_in_exec, UsageError)
    told = "".join(capsys.readouterr())
    assert told.strip() == "UsageError: unknown verb 'stauts'; did you mean show?; see %dlrover help"


@for_each("verb", ["tokens", "users", "mcp", "brain"])
def test_what_the_command_line_alone_serves_is_no_job_of_that_name(magic: Magic, verb: str, words) -> None:
    said = magic.refused(f"server {verb} list")
    assert said == words


def test_a_semicolon_hides_the_output_and_takes_no_result_away(magic: Magic) -> None:
    run = partial(magic.shell.run_cell, store_history=True)
    assert run("%dlrover jobs;").result is None
    assert isinstance(run("%dlrover jobs").result, JobsView)
    run("listed = %dlrover jobs;")
    assert isinstance(magic.shell.user_ns["listed"], JobsView)


def test_a_bug_of_ours_keeps_its_traceback(magic: Magic) -> None:
    def bug() -> None:
        raise ZeroDivisionError

    magic.link.on_snapshot = bug
    with pytest.raises(ZeroDivisionError):
        magic("status")


def test_batch_sizes_of_workers_are_set(magic: Magic, words) -> None:
    magic("batches ctr worker-0=256 worker-1=128 --why 'it is slow'")
    magic("batches worker-1=64")
    told = [(choice.sizes, choice.why) for choice in magic.link.choices]
    assert told == [((("worker-0", 256), ("worker-1", 128)), "it is slow"), ((("worker-1", 64),), "")]
    assert magic.refused("batches ctr 256") == words
    assert magic.refused("batches worker-0=many") == words
    assert len(magic.link.choices) == 2


def test_shards_that_ended_their_workers_are_shown_and_decided(magic: Magic) -> None:
    assert "In quarantine" not in str(magic("shards")).replace("In quarantine:", "")
    told = QuarantinedShard(Purpose.TRAIN, 7, 0, 71_680, 81_920, 0, ("worker-0", "worker-1", "worker-2"))
    magic.link.state = replace(magic.link.state, quarantined=(told, replace(told, shard=9)))
    shown = str(magic("shards ctr"))
    assert "<svg" in magic("shards ctr")._repr_mimebundle_()["text/html"]
    assert "71,680 to 81,920" in shown
    assert "worker-0, worker-1, worker-2" in shown
    assert magic("shards ctr --skip 7 --why 'damaged rows'").snapshot.quarantined[0].shard == 9
    magic("shards ctr --retry 9")
    assert magic.link.choices == [
        ShardChoice(7, ShardAction.SKIP, "ada", "damaged rows"),
        ShardChoice(9, ShardAction.RETRY, "ada"),
    ]
    assert "not in quarantine" in magic.refused("shards ctr --retry 9")
    assert "not allowed with" in magic.refused("shards ctr --retry 9 --skip 9")


def test_watch_returns_a_live_view_of_the_job(magic: Magic) -> None:
    assert magic("watch").name == "ctr"


def test_public_names_are_there_and_load_at_use() -> None:
    import dlrover_nb  # noqa: PLC0415 - the module is what is tested

    assert dlrover_nb.JobSpec is JobSpec
    assert all(getattr(dlrover_nb, name) is not None for name in dlrover_nb.__all__)
    assert set(dir(dlrover_nb)) == set(dlrover_nb.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Jobspec'"):
        _ = dlrover_nb.Jobspec


def action_of(link: Link) -> None:
    """Let the job propose an action against stragglers."""
    nodes = tuple(builders.node(f"worker-{i}", Role.WORKER, memory=1.0) for i in range(2))
    link.state = replace(link.state, nodes=nodes, mitigations=(builders.mitigation(),))


def test_mitigate_without_an_action_shows_what_waits_and_accept_then_takes_that(magic) -> None:
    magic.link.propose(1)
    action_of(magic.link)
    shown = magic("mitigate")
    assert isinstance(shown, MitigationsView)
    assert shown.tables().frame().loc[0, "mitigation"] == "m1"
    assert "%dlrover apply ctr m1" in str(shown)
    magic("accept --why 'so be it'")
    (decision,) = magic.link.decisions
    assert (decision.verdict, decision.proposal, decision.why) == (Verdict.ACCEPT, "m1", "so be it")


def test_an_action_is_ordered_by_its_words_and_a_wrong_node_is_told_with_the_right_ones(magic, words) -> None:
    action_of(magic.link)
    assert isinstance(magic("mitigate ctr --restart worker-1 --why slow"), DecisionView)
    (decision,) = magic.link.decisions
    assert (decision.verdict, decision.action.words, decision.why) == (
        Verdict.MITIGATE, "restart worker-1", "slow",
    )  # fmt: skip
    assert "there are: worker-0, worker-1" in magic.refused("mitigate --restart worker-9")
    assert magic.refused("mitigate --restart worker-1 --backup 1") == words
    assert "give exactly one" in magic.refused("mitigate --why slow")
    assert "expected WORKER=FACTOR" in magic.refused("mitigate --rates worker-0")
    assert len(magic.link.decisions) == 1


def test_reject_m1_rejects_the_action_and_not_the_proposal(magic) -> None:
    magic.link.propose(1)
    action_of(magic.link)
    magic("reject m1")
    assert magic.link.decisions[-1].proposal == "m1"
    magic("status")
    assert "p1 (" in magic.refused("accept"), "both were shown: the error names both"


def test_why_and_override_are_about_plans_also_after_an_action_was_shown(magic) -> None:
    magic.link.propose(1)
    action_of(magic.link)
    magic("mitigate")
    assert "p1" in str(magic("why"))
    magic("mitigate")
    magic("override --workers 3")
    assert magic.link.decisions[-1].proposal == "p1"


def test_after_stragglers_an_accept_means_the_action_that_was_shown_there(magic) -> None:
    magic.link.propose(1)
    action_of(magic.link)
    assert "apply ctr m1" in str(magic("stragglers"))
    magic("accept")
    assert magic.link.decisions[-1].proposal == "m1"
