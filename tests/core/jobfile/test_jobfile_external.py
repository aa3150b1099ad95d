import pytest
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.jobfile import dump_job, parse_job
from dlrover_nb.core.structs.job.external import Framework

JOB = """
name: a
external:
  framework: torch
  n_sample: 100000
  worker: {command: [torchrun, /app/train.py], image: registry/torch:2, env: [A=b]}
  step_log: 'step (?P<step>\\d+) loss (?P<loss>\\S+)'
"""


def test_programs_of_others_survive_a_job_file():
    job = parse_job(JOB)
    assert job.foreign is not None
    assert job.foreign.framework is Framework.TORCH
    assert job.foreign.worker.command == ("torchrun", "/app/train.py")
    assert parse_job(dump_job(job)) == job


def test_a_file_of_release_0_1_names_them_foreign(error_words):
    assert parse_job(JOB.replace("external:", "foreign:")) == parse_job(JOB)
    assert "\nexternal:" in dump_job(parse_job(JOB))
    with error_words(InvalidValueError):
        parse_job(f"{JOB}\nforeign: {{n_sample: 5, worker: {{command: [a]}}}}\n")


@for_each(
    ("group", "told"),
    [
        ("{n_sample: 5}", r"external needs worker; its keys"),
        ("{worker: {command: [a]}}", r"external needs n_sample"),
        ("{worker: {command: []}, n_sample: 5}", r"external: worker needs a command"),
        ("{worker: {command: [a]}, n_sample: 5}", r"ps needs a command with tensorflow"),
        ("{worker: , n_sample: 5}", r"external.worker must be a group of command, .*, got nothing"),
        (
            "{worker: {command: [a]}, n_sample: 5, roles: }",
            r"roles\[0\] must be a group of name, .*, got nothing",
        ),
        (
            "{worker: {command: [a]}, n_sample: 5, roles: r}",
            r"roles\[0\] must be a group of name, .*, got 'r'",
        ),
        ('{worker: {command: ["a\\0"]}, n_sample: 5}', r"external.worker: a program takes no NUL"),
        ('{worker: {command: [a], env: ["A=\\0"]}, n_sample: 5}', r"external.worker: a program takes no NUL"),
        ("{worker: {command: [a]}, n_sample: 0, framework: torch}", r"n_sample must be >= 1, got 0"),
        ("{worker: {command: [a]}, n_sample: 5, framework: jax}", r"unknown external.framework 'jax'"),
        ("{worker: {command: [a]}, n_sample: 5, framework: torch, port: 80}", r"port must be >= 1024"),
        ("{worker: {command: [a], env: [A]}, n_sample: 5}", r"external.worker: env must hold NAME=VALUE"),
        ("{worker: {command: [a]}, n_sample: 5, framework: torch, step_log: '('}", r"a regular expression"),
        ("{worker: {command: [a]}, n_sample: 5, framework: torch, step_log: '(?P<x>a)'}", r"got x"),
    ],
)
def test_programs_that_cannot_be_are_refused_by_their_place(group, told):
    with pytest.raises(InvalidValueError, match=told):
        parse_job(f"name: a\nexternal: {group}\n")
