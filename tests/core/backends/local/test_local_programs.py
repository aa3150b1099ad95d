"""External jobs as processes of this machine, through a real master of theirs."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from programs_conformance import ProgramsConformance
from waiting import until

from dlrover_nb.core.backends.local.record import read_master
from dlrover_nb.core.connect import connect


class TestLocalPrograms(ProgramsConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls, own_home):  # noqa: ARG003 - set up before
        cluster = connect("local")
        yield cluster
        cluster.shutdown(force=True)

    def kill_master(self, handle):
        master = read_master(Path(handle.snapshot().folder))
        os.kill(master.pid, signal.SIGKILL)
        until(lambda: not master.is_alive, what="the end of the master")
