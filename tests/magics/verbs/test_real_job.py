"""The verbs on a real job: real processes train real rows under the real driver, in this process."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.waiting import until

from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.driver.own import own_job
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.runtime.node.preflight import validate_job
from dlrover_nb.core.structs.cluster.cluster_access import ClusterAccess
from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.views.summary import JobSummary
from dlrover_nb.magics.commands import Commands
from dlrover_nb.magics.shell import loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from IPython.core.interactiveshell import InteractiveShell

    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity


class HereCluster:
    """A `Cluster` of this process: one driver per job, its nodes as processes of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._drivers: dict[str, own_job.OwnJob] = {}

    def connect(
        self, kind: str, address: str | None, *, start: bool = True, **options: object
    ) -> HereCluster:
        assert (kind, address, start, {*options.values()}) == ("ray", None, True, {None})
        return self

    simulated = False
    user, namespace = "ada", ""

    @property
    def description(self) -> str:
        return "this process"

    def capacity(self) -> Capacity:
        return LocalBackend(self._folder, cpus=4).capacity()

    def standing(self) -> ClusterAccess:
        return ClusterAccess()

    def submit(self, spec: JobSpec, *, model: object = None, data: object = None) -> JobHandle:
        folder = self._folder / spec.name
        folder.mkdir(mode=0o700)
        prepared = validate_job(spec, model=model, data=data)
        prepared.write(folder)
        driver = own_job.begin(
            prepared.spec,
            prepared.features,
            own_job.RunSetup(
                LocalBackend(folder, cpus=4),
                folder,
                history_url=f"sqlite:///{self._folder / 'history.db'}",
                clock=SystemClock(),
            ),
        )
        driver.start()
        self._drivers[spec.name] = driver
        return self.job(spec.name)

    def jobs(self) -> tuple[JobSummary, ...]:
        pictures = [driver.snapshot() for driver in self._drivers.values()]
        return tuple(
            JobSummary(s.spec.name, s.phase, "", s.started_at_s, s.target, 0.0, 0.0, None, live=True)
            for s in pictures
        )

    def job(self, name: str) -> JobHandle:
        if name not in self._drivers:
            raise NotFoundError(f"no job {name!r} here")
        return JobHandle(name, self._drivers[name], user="ada")

    def delete(self, name: str, *, force: bool = False) -> str:
        raise NotImplementedError

    def shutdown(self, *, force: bool = False) -> str:
        if not force:
            raise InvalidValueError("jobs run here; shutdown --force ends them")
        for driver in self._drivers.values():
            if not driver.snapshot().phase.is_final:
                driver.stop("ada", "shutdown")
        return "all jobs have ended"


@pytest.fixture
def dlrover(shell: InteractiveShell) -> Iterator[Callable[..., Any]]:
    folder = Path(tempfile.mkdtemp(prefix="dl"))  # short: unix sockets live below it
    magics = loaded(shell)
    assert magics is not None
    magics.commands = Commands(HereCluster(folder).connect)

    def run(line: str, cell: str | None = None) -> Any:
        if cell is None:
            return shell.run_line_magic("dlrover", line)
        return shell.run_cell_magic("dlrover", line, cell)

    run("connect")
    yield run
    run("shutdown --force")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.more
def test_a_job_is_submitted_scaled_exported_and_stopped_by_magics(
    dlrover: Callable[..., Any], tmp_path: Path
) -> None:
    job = dlrover("submit ctr", "mode: manual\nepochs: 50\nmodel: {hidden: [16], embedding_dim: 4}\n")
    until(lambda: job.snapshot().samples_per_s > 0, "training")
    shown = dlrover("scale --workers 2 --why 'try two'")
    assert (shown.decision.verdict, shown.decision.by) == (Verdict.SCALE, "ada")
    until(lambda: (r := job.snapshot().running) is not None and r.worker.count == 2, "the second worker")
    assert "2 x 0.5 cpu" in str(dlrover("status"))
    dlrover("export -o job.yaml")
    *_, document = yaml.safe_load_all((tmp_path / "job.yaml").read_text())
    assert document["spec"]["replicaSpecs"]["worker"]["replicas"] == 2
    assert document["metadata"]["annotations"]["dlrover-nb/why"] == "try two"
    assert dlrover("stop").snapshot.phase is JobPhase.STOPPED
    dlrover("report ctr -o report.html")
    assert "try two" in (tmp_path / "report.html").read_text()
