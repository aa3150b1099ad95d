import pytest

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.jobfile import job_from
from dlrover_nb.core.runtime.preflight import validate_job


def test_programs_of_others_run_in_pods_alone():
    foreign = {"n_sample": 5, "framework": "torch", "worker": {"command": ["a"]}}
    with pytest.raises(InvalidValueError, match="connect kubernetes"):
        validate_job(job_from({"name": "theirs", "external": foreign}))
