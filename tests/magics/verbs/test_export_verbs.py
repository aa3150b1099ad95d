"""`export` in every kind, and the way back: shown, checked, started anew, applied to the job that runs."""

from __future__ import annotations

import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from IPython.core.error import UsageError
from support.cases import for_each
from support.jobs.cluster_double import BETTER
from support.jobs.exports import WRITTEN
from support.words import lines_with

from dlrover_nb.core.models.trainable import CUSTOM
from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.core.structs.job.job import ModelSpec
from dlrover_nb.magics.shell import loaded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell
    from support.jobs.cluster_double import MemoryCluster


@pytest.fixture
def run(shell: InteractiveShell, memory: MemoryCluster) -> Callable[..., Any]:
    def dlrover(line: str) -> Any:
        return shell.run_line_magic("dlrover", line)

    dlrover("connect ray")
    dlrover("submit ctr --epochs 7")
    memory.links["ctr"].propose(1)
    return dlrover


@pytest.fixture
def exported(run: Callable[..., Any], tmp_path: Path) -> Path:
    run("export ctr --plan p1 -o job.yaml")
    return tmp_path / "job.yaml"


@pytest.mark.more
@pytest.mark.parametrize("kind", WRITTEN)
def test_every_kind_comes_back_with_its_plan(run, memory: MemoryCluster, kind: str) -> None:
    shown = run(f"export ctr --kind {kind} --plan p1 -o a.yaml --check")
    assert "Valid against the real schemas" in str(shown)
    told = run("import a.yaml")
    assert (told.imported.kind, told.imported.name, told.imported.plan) == (kind, "ctr", BETTER)
    assert run("import --check a.yaml").kinds == tuple(d["kind"] for d in yaml.safe_load_all(shown.text))
    assert memory.links["ctr"].decisions == []


def test_secrets_are_listed_and_written_only_on_request(run, tmp_path: Path, words) -> None:
    run("submit leaky --set 'kubernetes.env=[HF_TOKEN=hunter2hunter2, LEVEL=debug]'")
    shown = run("export leaky --kind pods -o a.yaml")
    assert "hunter2" not in str(shown)
    assert [each.split(" of ")[0] for each in shown.to_fill_in] == ["the variable HF_TOKEN"]
    assert lines_with(str(shown), "HF_TOKEN") == words
    whole = run("export leaky --kind pods -o b.yaml --with-secrets")
    assert "hunter2hunter2" in (tmp_path / "b.yaml").read_text()
    assert whole.to_fill_in == ()
    assert stat.S_IMODE((tmp_path / "b.yaml").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "a.yaml").stat().st_mode) != 0o600


def test_whether_dlrover_plans_again_is_an_explicit_choice(run) -> None:
    def scales(line: str) -> bool:
        *_, job = yaml.safe_load_all(run(line).text)
        return job["spec"]["replicaSpecs"]["worker"]["autoScale"]

    assert (scales("export"), scales("export --auto-scale")) == (False, True)


def test_an_import_shows_what_differs_from_the_job_that_runs(run, exported: Path, words) -> None:
    text = str(run("import job.yaml"))
    assert lines_with(text, "Different") == words
    assert "plan.worker.count" in text
    assert "7 epochs" in text
    run("accept p1")
    text = exported.read_text().replace("replicas: 2", "replicas: 3")
    exported.write_text(text)
    assert lines_with(str(run("import job.yaml")), "replicas:") == words


def test_a_file_is_read_without_a_cluster(run, exported: Path, shell: InteractiveShell) -> None:
    run("shutdown --force")
    assert run("import job.yaml").running is None
    with pytest.raises(UsageError, match="not connected"):
        run("import job.yaml --apply")


def test_apply_scales_the_job_that_runs(run, memory: MemoryCluster, exported: Path) -> None:
    run("import job.yaml --apply")
    decision = memory.links["ctr"].decisions[-1]
    assert (decision.verdict, decision.plan, decision.why) == (
        Verdict.SCALE,
        BETTER,
        "imported from job.yaml",
    )


def test_submit_starts_the_job_on_the_imported_plan(run, memory: MemoryCluster, exported: Path) -> None:
    exported.write_text(exported.read_text().replace("name: ctr", "name: again"))
    assert run("import job.yaml --submit").name == "again"
    spec = memory.links["again"].state.spec
    assert (spec.plan, spec.n_epoch) == (BETTER, 7)


TRAINJOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: digits}
spec:
  runtimeRef: {name: torch-distributed}
  trainer: {image: "registry/digits:2", command: [torchrun, train.py], numNodes: 3}
"""


def test_a_trainjob_of_others_is_shown_and_started(run, memory: MemoryCluster, tmp_path: Path) -> None:
    (tmp_path / "digits.yaml").write_text(TRAINJOB)
    shown = str(run("import digits.yaml"))
    for words in (
        "torchrun train.py",
        "registry/digits:2",
        "another system",
        "n_sample: a TrainJob does not",
    ):
        assert words in shown
    assert "epochs" not in shown
    assert run("import digits.yaml --submit").name == "digits"
    spec = memory.links["digits"].state.spec
    assert spec.plan.worker.count == 3
    assert spec.foreign is not None
    assert spec.foreign.worker.command == ("torchrun", "train.py")


@pytest.mark.more
@for_each(
    ("line", "message"),
    [
        ("import nowhere.yaml", "no file "),
        ("import --check nowhere.yaml", "no file "),
        ("import .", "name a file with YAML text"),
        ("import job.yaml --check --apply", "--check and --apply do not go together; give one of them"),
        ("import bad.yaml", "malformed YAML in line 2, column"),
        (
            "import foreign.yaml",
            "an import reads ElasticJob, TFJob, PyTorchJob, TrainJob, RayJob, JobSet, ScalePlan, Pod, Job, got ",
        ),
        ("import --check foreign.yaml", "kind must be one of"),
        ("import --check empty.yaml", "empty.yaml is empty; expected exported YAML"),
        ("import --check wrong.yaml", "wrong.yaml is not valid: ElasticJob ctr: spec"),
        ("export --kind yaml", "--kind: unknown kind of export 'yaml'; choose from elasticjob"),
        ("export --namespace Not_One", "; change the job or the option it comes from"),
        ("export --plan p9", "job ctr has no plan p9; choose from current, p1"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(
    run, memory: MemoryCluster, exported: Path, tmp_path: Path, line: str, message: str
) -> None:
    (tmp_path / "bad.yaml").write_text("kind: ElasticJob\nspec: {a: [")
    (tmp_path / "foreign.yaml").write_text("kind: Deployment\nmetadata: {name: x}")
    (tmp_path / "empty.yaml").write_text("\n")
    (tmp_path / "wrong.yaml").write_text(exported.read_text().replace("replicas: 2", "replicas: two"))
    before = memory.links["ctr"].state
    with pytest.raises(UsageError) as caught:
        run(line)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert memory.links["ctr"].state is before
    assert memory.links["ctr"].decisions == []


def test_own_code_is_given_again_with_an_import(
    run, memory: MemoryCluster, shell, tmp_path: Path, error_words
) -> None:
    link = memory.links["ctr"]
    own = ModelSpec(name=CUSTOM, code=f"pickle:{'a' * 64}")
    link.state = replace(link.state, spec=replace(link.state.spec, name="mine", model=own))
    with error_words(UsageError):
        run("export ctr -o mine.yaml")
    run("export ctr --kind scaleplan -o mine.yaml")
    with error_words(UsageError):
        run("import mine.yaml --submit")
    assert "mine" not in memory.links
    run("import mine.yaml").submit(model=dict)
    assert memory.own[-1] == (dict, None)


def test_names_seen_in_a_picture_are_offered_afterwards(run, memory: MemoryCluster, shell) -> None:
    link = memory.links["ctr"]
    run("mode auto")
    link.state = replace(link.state, decisions=tuple(link.decisions))
    run("status")
    magics = loaded(shell)
    assert magics is not None
    assert magics.commands.session.names["ctr"].decisions == ("d1",)
    assert magics.commands.session.names["ctr"].proposals == ("p1",)
