"""External jobs as processes of this machine, through a real master of theirs."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from support.conformance.programs import PYTHON, TRAINER, ProgramsConformance
from support.driver.kill_master import kill_for_good
from support.operators.status_server_played import status_server
from support.waiting import LIMIT_S, until

from dlrover_nb.core.connect import connect
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobPhase


@pytest.mark.more
class TestLocalPrograms(ProgramsConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls, own_home):  # noqa: ARG003 - set up before
        cluster = connect("local")
        yield cluster
        cluster.shutdown(force=True)

    @pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is needed to make a certificate")
    def test_in_a_pod_of_kubeflow_trainer_the_wait_for_a_job_passes_its_progress_on(
        self, submitted, tmp_path, monkeypatch
    ):
        """The master inherits the variables, and its program still reports to it alone."""
        with status_server(tmp_path) as (server, env):
            for name, value in env.items():
                monkeypatch.setenv(name, value)
            role = ExternalRole((*PYTHON, TRAINER, str(tmp_path / "end")))
            handle = submitted("passed", ExternalSpec(role, 10_000, framework=Framework.TORCH), n_worker=1)
            waiting = threading.Thread(target=handle.wait, daemon=True)
            waiting.start()
            told = server.statuses
            until(lambda: told and told[-1].get("progressPercentage") == 42, what=lambda: told)
            assert {"name": "loss", "value": "0.25"} in told[-1]["metrics"]
            (tmp_path / "end").touch()
            waiting.join(LIMIT_S)
            assert not waiting.is_alive()
        assert (told[-1]["progressPercentage"], told[-1]["estimatedRemainingSeconds"]) == (100, 0)
        assert handle.snapshot().phase is JobPhase.SUCCEEDED

    def kill_master(self, handle):
        kill_for_good(Path(handle.snapshot().folder))
