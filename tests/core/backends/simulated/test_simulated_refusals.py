"""A simulated cluster says what it cannot simulate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.job.start_from import StartFrom

SPEC = JobSpec("simulated")


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (replace(SPEC, foreign=ExternalSpec(ExternalRole(("a",)), 5, framework=Framework.TORCH)), "external"),
        (replace(SPEC, start_from=StartFrom("run")), "start_from"),
        (replace(SPEC, sync=Sync.ALLREDUCE), "choose sync asp"),
    ],
)
def test_what_only_real_jobs_have_is_refused(spec, told):
    with pytest.raises(InvalidValueError, match=told):
        connect("sim", machines=2).submit(spec)


def test_code_of_the_user_is_refused():
    with pytest.raises(InvalidValueError, match="your own code"):
        connect("sim", machines=2).submit(SPEC, model=object())
