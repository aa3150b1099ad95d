"""Where a job cannot begin from a run, one line says so and what can be done."""

from __future__ import annotations

from dlrover_nb.core.backends.kubernetes.jobs.submission import prepared
from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.start_from import StartFrom

SPEC = JobSpec("next", start_from=StartFrom("daily"))


def test_pods_need_an_address_that_they_can_read(error_words):
    with error_words(InvalidValueError):
        prepared(SPEC, model=None, data=None)
    for source in ("s3://bucket/daily", "/mnt/models/daily"):
        spec = prepared(JobSpec("next", start_from=StartFrom(source)), model=None, data=None).spec
        assert spec.start_from == StartFrom(source)


def test_an_external_job_has_its_own_checkpoints(error_words):
    external = ExternalSpec(ExternalRole(("torchrun", "t.py")), 1000, framework=Framework.TORCH)
    job = JobSpec("next", start_from=StartFrom("s3://b/x"), foreign=external)
    with error_words(InvalidValueError):
        prepared(job, model=None, data=None)


def test_a_simulated_job_has_no_parameters(error_words):
    cluster = connect("sim")
    try:
        with error_words(InvalidValueError):
            cluster.submit(SPEC)
    finally:
        cluster.shutdown(force=True)
