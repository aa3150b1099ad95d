"""An ended job is run again by the command that its error names."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.client.submit_again import short_file, submit_again, submit_command
from dlrover_nb.core.errors import StaleDecisionError
from dlrover_nb.core.jobfile import parse_job
from dlrover_nb.core.structs.job.job import DataSpec, JobPhase, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.magics.arguments import GRAMMAR
from dlrover_nb.magics.commands import Commands
from dlrover_nb.magics.submission import spec_of

if TYPE_CHECKING:
    from support.jobs.cluster_double import MemoryCluster

JOB = """
name: ctr
epochs: 20
mode: auto
plan: {worker: {count: 2, memory_mib: 2048}}
bounds: {worker_cpus: [0.5, 1.0], quota_cpu: 4}
pins: {ps: 1}
model: {name: dcn_v2, epsilon: 1.0e-8, hidden: [64, 32]}
data: {format: parquet, path: "/rows of/to day's.parquet", label: clicked, numeric: [a, "b,c"]}
early_stopping: {metric: auc, patience: 2}
"""


def submitted(command: str) -> JobSpec:
    values = GRAMMAR.parse_line(command).values
    return replace(spec_of(None, values["settings"], None, {}), owner="")


def test_the_command_makes_the_same_job() -> None:
    job = parse_job(JOB)
    assert submitted(submit_command(job)) == job


def test_a_short_file_makes_the_same_job_and_has_no_key_that_goes_without_saying() -> None:
    job = parse_job(JOB)
    assert parse_job(short_file(job)) == job
    assert "seed" not in short_file(job)
    assert short_file(JobSpec("ctr", owner="ada")) == "name: ctr\n"


def test_a_job_of_defaults_needs_its_name_alone() -> None:
    assert submit_command(JobSpec("ctr", owner="ada")) == "submit ctr"


@settings(deadline=None, max_examples=20)
@given(
    st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1),
    st.floats(1e-12, 0.5, exclude_min=True),
    st.integers(1, 9),
)
def test_any_value_survives_the_line(column: str, rate: float, n_epoch: int) -> None:
    job = JobSpec("ctr", data=DataSpec(label=column), model=ModelSpec(learning_rate=rate), n_epoch=n_epoch)
    assert submitted(submit_command(job)) == job


def test_code_without_a_name_cannot_be_submitted_by_a_command(words) -> None:
    job = JobSpec("ctr", model=ModelSpec("custom", code="pickle:" + "0" * 64))
    assert submit_again(job) == words
    named = JobSpec("ctr", data=DataSpec(format=DataFormat.OWN, path="shop.rows:Clicks"))
    assert "shop.rows:Clicks" in submit_again(named)


@pytest.mark.parametrize("line", ["accept ctr", "scale ctr --workers 2", "undo ctr", "mode ctr auto"])
def test_steering_an_ended_job_names_the_command_that_runs_it_again(
    memory: MemoryCluster, line: str, error_words
) -> None:
    commands = Commands(memory.connect, auto_connect=True)
    commands.run(GRAMMAR.parse_line("submit ctr --epochs 7"))
    memory.links["ctr"].end(JobPhase.SUCCEEDED)
    with error_words(StaleDecisionError) as caught:
        commands.run(GRAMMAR.parse_line(line))
    command = str(caught.value).split("`")[1]
    assert shlex.split(command)[:2] == ["submit", "ctr"]
    memory.links.clear()
    commands.run(GRAMMAR.parse_line(command))
    assert memory.links["ctr"].state.spec.n_epoch == 7


@pytest.mark.parametrize(
    "changes",
    [
        {"kubernetes": KubernetesSpec(env=("HF_TOKEN=hunter2hunter2",))},
        {"checkpoint_url": "s3://ada:hunter2hunter2@bucket/run"},
    ],
)
def test_no_error_writes_out_the_secrets_of_a_job(changes: dict[str, object]) -> None:
    told = submit_again(JobSpec("ctr", **changes))  # type: ignore[arg-type]
    assert "hunter2hunter2" not in told
    assert "submit ctr" in told
