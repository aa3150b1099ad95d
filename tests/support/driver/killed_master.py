"""A job whose first master is a process of its own, to be killed."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.driver.own import own_job
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.views.snapshot import JobSnapshot
from support.driver.real_job import LIMIT_S, plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dlrover_nb.core.structs.data.features import FeatureSpec


MASTER = """
import sys, time
from pathlib import Path
from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.driver.own import own_job
from dlrover_nb.core.structs.data.features import FeatureSpec
from dlrover_nb.core.structs.job.job import JobSpec

class Tcp(LocalBackend):
    def listen(self):
        return "tcp://127.0.0.1"

folder, spec, features, history, listen = sys.argv[1:]
kind = LocalBackend if listen == "ipc" else Tcp
driver = own_job.begin(
    from_json(Path(spec).read_bytes(), JobSpec), from_json(Path(features).read_bytes(), FeatureSpec),
    own_job.RunSetup(
        kind(Path(folder), cpus=3.0, outlive=True), Path(folder), history_url=history, clock=SystemClock()
    ),
)
driver.start()
while not driver.join(0.05):
    Path(folder, "seen.tmp").write_bytes(to_json(driver.snapshot()))
    Path(folder, "seen.tmp").rename(Path(folder, "seen"))
"""


class Comeback:
    """A job whose first master is a process of its own, to be killed, and whose second one is here.

    `before` is a program that this process runs first.
    """

    def __init__(
        self, tmp_path: Path, features: FeatureSpec, listen: str, *, before: str = "", **changes: object
    ) -> None:
        fields = {"plan": plan(worker_cpu=1.0), "mode": Mode.MANUAL, "n_epoch": 3, "checkpoint_every_s": 1.0}
        fields |= {"heartbeat_timeout_s": LIMIT_S}
        self.spec = JobSpec("back", **(fields | changes))  # type: ignore[arg-type]
        self.features, self.folder = features, tmp_path / "run"
        self.history = f"sqlite:///{tmp_path / 'history.db'}"
        self.driver: own_job.OwnJob | None = None
        (tmp_path / "spec").write_bytes(to_json(self.spec))
        (tmp_path / "features").write_bytes(to_json(features))
        files = [str(tmp_path / name) for name in ("run", "spec", "features")]
        self.master = subprocess.Popen([sys.executable, "-c", before + MASTER, *files, self.history, listen])
        self.n_seen = 0

    @property
    def now(self) -> JobSnapshot:
        if self.driver is not None:
            return self.driver.snapshot()
        return from_json((self.folder / "seen").read_bytes(), JobSnapshot)

    def until(self, condition: Callable[[JobSnapshot], object]) -> JobSnapshot:
        end = time.monotonic() + LIMIT_S
        while not ((self.driver or (self.folder / "seen").exists()) and condition(self.now)):
            assert time.monotonic() < end
            time.sleep(0.02)
        return self.now

    def kill_master(self) -> None:
        self.master.kill()
        self.master.wait()

    def come_back(self, backend: LocalBackend | None = None) -> None:
        backend = backend or LocalBackend(self.folder, cpus=3.0, outlive=True)
        self.driver = own_job.resume(
            own_job.RunSetup(backend, self.folder, history_url=self.history, clock=SystemClock())
        )
        self.driver.start()

    def until_end(self) -> JobSnapshot:
        assert self.driver is not None
        assert self.driver.join(LIMIT_S), self.now
        return self.now

    def end(self) -> None:
        self.kill_master()
        if self.driver is not None:
            self.driver.close()
        for path in self.folder.glob("nodes/*.pid"):
            backend = LocalBackend(self.folder, outlive=True)
            backend.adopt({path.stem: (0.5, 512)})
            backend.close()
