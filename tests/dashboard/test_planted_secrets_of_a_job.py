"""A secret is planted at each place of a job, and looked for in all that people, programs and agents are shown."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from support.cases import for_each
from support.dashboard.dashboards import ByName, Client, running
from support.dashboard.team_clusters import MastersCluster, master_of, masters_team
from support.jobs import builders as b

from dlrover_nb.api.imports import ImportView
from dlrover_nb.api.job_builder import JobBuilder
from dlrover_nb.api.views import reprs
from dlrover_nb.api.views.job_views import StatusView
from dlrover_nb.core.basics.redaction import PLACEHOLDER
from dlrover_nb.core.client.submit_again import submit_again
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.commands.second_person import NO_RULES
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.exporters import EXPORTERS
from dlrover_nb.core.export.imported import read_export
from dlrover_nb.core.export.nodes import Options
from dlrover_nb.core.export.provenance import Provenance
from dlrover_nb.core.jobfile import dump_job, job_from, load_mapping, parse_job
from dlrover_nb.core.structs.decisions.commands import decide
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.decisions.people import local_person
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, FixedRole
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec
from dlrover_nb.core.structs.job.secrets import check_complete, for_storage, secret_values, without_secrets
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.core.structs.job.start_from import StartFrom
from dlrover_nb.core.structs.training.failures import ProgramError
from dlrover_nb.core.yamltext import to_yaml
from dlrover_nb.dashboard.agent_tools import AgentTools
from dlrover_nb.widgets.past.html_report import report_html

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "hunter2-pl4nt3d"
URL = f"s3://KEY:{SECRET}@bucket/x"


def _program(*words: str, env: tuple[str, ...] = ()) -> ExternalSpec:
    return ExternalSpec(
        ExternalRole(("python", "train.py", *words), env=env), 5000, ExternalRole(("python", "ps.py"))
    )


def _pods(**fields: Any) -> JobSpec:
    return JobSpec("ads", kubernetes=KubernetesSpec(**fields))


def _external(*words: str, env: tuple[str, ...] = ()) -> JobSpec:
    return JobSpec("ads", foreign=_program(*words, env=env))


JOBS = {
    "variable of pods": _pods(env=(f"DB_PASSWORD={SECRET}", "LEVEL=debug")),
    "variable with a URL": _pods(env=(f"FEED={URL}",)),
    "annotation by its name": _pods(annotations=(f"example.org/api-token={SECRET}",)),
    "annotation by its value": _pods(annotations=(f"example.org/feed={URL}",)),
    "label": _pods(labels=(f"webhook-secret={SECRET}", "team=ads")),
    "place of code": _pods(code_url=f"gs://u:{SECRET}@code/here"),
    "data": JobSpec("ads", data=DataSpec(DataFormat.PARQUET, f"s3://KEY:{SECRET}@bucket/day1.parquet")),
    "checkpoints": JobSpec("ads", checkpoint_url=URL),
    "start": JobSpec("ads", start_from=StartFrom(URL)),
    "word after an option": _external("--token", SECRET),
    "word after a short option": _external("-p", SECRET),
    "option with a value": _external(f"--db-password={SECRET}"),
    "URL among words": _external(f"--data={URL}"),
    "line of a shell": _external("-c", f"exec train --api-key {SECRET} -p {SECRET} --rows 5"),
    "user of curl": _external("-u", f"ada:{SECRET}", "-u", "1000:1000"),
    "variable of a program": _external(env=(f"NPM_TOKEN={SECRET}",)),
    "another role": JobSpec(
        "ads",
        foreign=replace(_program(), roles=(FixedRole("proxy", ("proxy", "--auth", SECRET), env=(f"PASS={SECRET}",)),)),
    ),
}  # fmt: skip


@for_each("place", JOBS)
def test_no_repr_and_no_display_of_a_job_holds_a_secret(place: str) -> None:
    job = JOBS[place]
    builder = JobBuilder("ads", load_mapping(dump_job(job)))
    groups = (job, job.kubernetes, job.foreign, job.data, job.start_from)
    view = reprs.spec_view(job)
    for text in (*map(repr, groups), f"{[job]}", repr(builder), view.text(), view.html()):
        assert SECRET not in text
    assert SECRET in dump_job(job), "a job file that its owner asks for is whole"
    assert builder.build() == job


@for_each("place", JOBS)
def test_what_is_stored_and_exported_holds_no_secret_and_cannot_start(place: str) -> None:
    job = JOBS[place]
    stored, (exported, left) = for_storage(job), without_secrets(job)
    assert SECRET.encode() not in to_json(stored) + to_json(exported)
    assert left
    assert SECRET not in "".join(left)
    if PLACEHOLDER in to_json(stored).decode():
        with pytest.raises(InvalidValueError, match="must hold a secret"):
            check_complete(stored)
    check_complete(job)


@for_each("place", JOBS)
def test_a_secret_of_any_place_is_known_by_its_value_in_logs(place: str) -> None:
    if place != "line of a shell":  # of whose options the forms alone are known
        assert SECRET in secret_values(JOBS[place])


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, AgentTools]]:
    """Give a dashboard and the tools of an agent on a cluster with one job for each place."""
    masters = []
    for number, job in enumerate(JOBS.values()):
        message = f"stopped as {SECRET} was refused" if secret_values(job) else ""
        spec = replace(job, owner="ada")
        masters.append(master_of(f"job-{number}", spec=spec, message=message))
    folder = tmp_path_factory.mktemp("faces")
    cluster = MastersCluster(*masters)
    with masters_team(folder, cluster) as team, running(team, ByName()) as dashboard:
        url = f"sqlite:///{folder / 'agents.sqlite'}"
        tools = AgentTools(lambda: cluster, local_person("ada"), lambda: b.START_S, url=url, rules=NO_RULES)  # type: ignore[arg-type,return-value]
        yield Client(dashboard.url).as_person("ada"), tools
        tools.close()


@pytest.mark.more
@for_each("place", JOBS)
def test_no_program_and_no_agent_is_answered_with_a_secret(
    place: str, faces: tuple[Client, AgentTools]
) -> None:
    client, tools = faces
    name = f"job-{[*JOBS].index(place)}"
    for path in ("", "/proposals", "/mitigations"):
        told = client.get(f"/api/v1/jobs/a/{name}{path}")
        assert told.status == 200, told.text
        assert SECRET not in told.text
    for answer in (tools.job_status(name), tools.plans(name), tools.stragglers(name)):
        assert SECRET not in str(answer)
    assert PLACEHOLDER in str(tools.job_status(name))


@pytest.mark.more
@for_each("place", JOBS)
def test_no_view_and_no_report_holds_a_secret(place: str) -> None:
    snapshot = b.snapshot(spec=replace(JOBS[place], owner="ada"))
    view = StatusView(snapshot)
    shown = (view.view().text(), view.view().html(), repr(view), str(view.tables()))
    for text in (*shown, report_html(snapshot), submit_again(snapshot.spec)):
        assert SECRET not in text
    documents = EXPORTERS["pods"](snapshot.spec, b.NOW_PLAN, Provenance(), Options(with_secrets=True))
    imported = read_export(to_yaml(*documents))
    other = b.snapshot(spec=JobSpec("ads", seed=5))
    compared = ImportView("ads.yaml", imported, other)
    assert SECRET not in compared.view().text() + compared.view().html() + str(compared.tables())


REFUSED = {
    "variable without a name": {"kubernetes": {"env": [f"={SECRET}"]}},
    "variable without =": {"kubernetes": {"env": [SECRET]}},
    "several words in one": {"external": {"worker": {"command": [f"python train.py --token {SECRET}"]}, "n_sample": 5}},
    "shell": {"external": {"worker": {"command": f"python train.py --token {SECRET} | tee"}, "n_sample": 5}},
    "open quote": {"external": {"worker": {"command": f"train --password {SECRET} 'x"}, "n_sample": 5}},
    "NUL": {"external": {"worker": {"command": ["a"], "env": [f"TOKEN={SECRET}\0"]}, "n_sample": 5}},
    "data of no format": {"data": f"s3://KEY:{SECRET}@bucket/day1"},
    "data of census": {"data": {"format": "census", "path": URL}},
    "mode": {"mode": URL},
    "list": {"checkpoint_url": [URL]},
}  # fmt: skip


@for_each("kind", REFUSED)
def test_a_job_that_is_refused_is_not_quoted_with_its_secrets(kind: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        job_from({"name": "ads", **REFUSED[kind]})
    assert SECRET not in str(refused.value)


def test_a_job_file_that_is_malformed_is_not_quoted_with_its_secrets() -> None:
    with pytest.raises(InvalidValueError, match="malformed") as refused:
        parse_job(f"name: ads\nkubernetes:\n  env:\n    DB_PASSWORD: '{SECRET}\n")
    assert SECRET not in str(refused.value)


@for_each(
    "text", [f"token={SECRET}", f"{URL} is slow", f"run with --token {SECRET}", f"['--password', '{SECRET}']"]
)
def test_no_reason_and_no_error_of_a_program_holds_a_credential(text: str) -> None:
    decision = Decision(Verdict.ACCEPT, "ada", 0.0, "p1", why=f"as {text}")
    for record in (decision, decide(decision, "ads"), ProgramError(f"ValueError: {text}")):
        assert SECRET not in to_json(record).decode()
        assert PLACEHOLDER in to_json(record).decode()


HARMLESS = (
    "python train.py --tokenizer bert --max-tokens 2048 --n-token 5 --author Ada --key id",
    "python -m torch.distributed.run --rdzv-conf join_timeout=3 -p 8080",
    "sh -c 'mkdir -p outdir1 && exec train -p 2 -p /data/x'",
    "docker -u 1000:1000 --keys id",
)


@for_each("line", HARMLESS)
def test_usual_words_of_commands_stay(line: str) -> None:
    words = shlex.split(line)
    job = _external(*words)
    assert without_secrets(job)[0] == for_storage(job) == job
    assert not without_secrets(job)[1]


def test_usual_annotations_and_labels_stay() -> None:
    job = _pods(
        annotations=(
            "sidecar.istio.io/inject=false",
            "vault.hashicorp.com/agent-inject-secret-db.txt=secret/data/db",
            "eks.amazonaws.com/token-expiration=86400",
        ),
        labels=("kueue.x-k8s.io/queue-name=team", "team=ads"),
    )
    assert without_secrets(job) == (job, ())
