import pytest

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.jobfile import dump_job, parse_job
from dlrover_nb.core.structs.external import Framework

JOB = """
name: a
foreign:
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


@pytest.mark.parametrize(
    ("group", "told"),
    [
        ("{n_sample: 5}", r"foreign needs worker; its keys"),
        ("{worker: {command: [a]}}", r"foreign needs n_sample"),
        ("{worker: {command: []}, n_sample: 5}", r"foreign: worker needs a command"),
        ("{worker: {command: [a]}, n_sample: 5}", r"ps needs a command with tensorflow"),
        ("{worker: {command: [a]}, n_sample: 0, framework: torch}", r"n_sample must be >= 1, got 0"),
        ("{worker: {command: [a]}, n_sample: 5, framework: jax}", r"unknown foreign.framework 'jax'"),
        ("{worker: {command: [a]}, n_sample: 5, framework: torch, port: 80}", r"port must be >= 1024"),
        ("{worker: {command: [a], env: [A]}, n_sample: 5}", r"foreign.worker: env must hold NAME=VALUE"),
        ("{worker: {command: [a]}, n_sample: 5, framework: torch, step_log: '('}", r"a regular expression"),
        ("{worker: {command: [a]}, n_sample: 5, framework: torch, step_log: '(?P<x>a)'}", r"got x"),
    ],
)
def test_programs_that_cannot_be_are_refused_by_their_place(group, told):
    with pytest.raises(InvalidValueError, match=told):
        parse_job(f"name: a\nforeign: {group}\n")
