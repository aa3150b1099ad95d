"""Laws of the builder of jobs: it gives what a job file gives."""

import doctest

import pytest
from hypothesis import given, settings
from support.cases import for_each
from support.jobs.exports import jobs

import dlrover_nb
from dlrover_nb.api import job_builder
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.jobfile import dump_job, load_mapping, parse_job
from dlrover_nb.core.structs.job.external import Framework

JobBuilder = dlrover_nb.JobBuilder


def rebuilt(job):
    """Return a job built role by role from what its job file holds."""
    content = load_mapping(dump_job(job))
    plan, external = content.pop("plan"), content.pop("external")
    builder = JobBuilder().set(**content)
    roles = []
    if external is not None:
        roles = external.pop("roles")
        programs = {name: external.pop(name) for name in ("worker", "ps")}
        builder = builder.programs(**external)
    for name in ("worker", "ps"):
        builder = builder.role(name, **plan[name], **({} if external is None else programs[name]))
    for each in roles:
        builder = builder.role(**each)
    return builder.build()


@pytest.mark.release
@settings(max_examples=30, deadline=None)
@given(jobs)
def test_a_job_that_is_built_is_that_of_its_file_and_back(job):
    built = rebuilt(job)
    assert built == parse_job(dump_job(job))
    assert parse_job(dump_job(built)) == built


def test_a_builder_builds_what_the_same_file_says():
    built = (
        JobBuilder("ads")
        .programs(framework=Framework.TORCH, n_sample=1000)
        .role("worker", "torchrun '/app/my train.py'", count=3, cpu=2, env=("A=b",))
        .role("evaluator", ["python", "/app/eval.py"], memory_mib=512, ends_job=True)
        .set(batch_size=64, bounds={"worker_cpus": (1, 2)})
        .build()
    )
    assert built == parse_job("""
name: ads
batch_size: 64
bounds: {worker_cpus: [1, 2]}
plan: {worker: {count: 3, cpu: 2}}
external:
  framework: torch
  n_sample: 1000
  worker: {command: [torchrun, /app/my train.py], env: [A=b]}
  roles:
    - {name: evaluator, command: [python, /app/eval.py], memory_mib: 512, ends_job: true}
""")


def test_methods_change_nothing_and_the_last_of_a_name_counts():
    first = JobBuilder("a").programs(n_sample=5, framework="torch").role("worker", "a").role("reader", "b")
    second = first.role("reader", "c", count=2)
    assert first.build().foreign.roles[0].command == ("b",)
    (reader,) = second.build().foreign.roles
    assert (reader.command, reader.count) == (("c",), 2)


def test_without_commands_it_is_a_job_of_our_own():
    job = JobBuilder("mine").role("worker", count=2).role("ps", cpu=0.5).build()
    assert job.foreign is None
    assert (job.plan.worker.count, job.plan.ps.cpu) == (2, 0.5)


@for_each(
    ("builder", "why"),
    [
        (JobBuilder(), "the job has no name"),
        (JobBuilder("a").set(batchsize=4), "did you mean batch_size"),
        (JobBuilder("a").role("worker", cores=4), "unknown key in external.worker 'cores'"),
        (JobBuilder("a").role("reader", "x"), "external needs worker and n_sample"),
    ],
)
def test_what_cannot_be_is_refused_as_in_a_file(builder, why):
    with pytest.raises(InvalidValueError, match=why):
        builder.build()


def test_the_example_of_its_documentation_holds():
    assert doctest.testmod(job_builder).failed == 0


@pytest.mark.parametrize("command", ["python 'train.py", 5])
def test_a_command_that_no_shell_could_split_is_refused_with_its_role(command):
    with pytest.raises(InvalidValueError, match="command of ps"):
        JobBuilder("ads").role("ps", command)
