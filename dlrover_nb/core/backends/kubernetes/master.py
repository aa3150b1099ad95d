"""The program of a master's pod: ``python -m dlrover_nb.core.backends.kubernetes.master``.

It inspects the data where the client could not, drives the job, answers clients over HTTP, saves the last
snapshot in the cluster, and keeps answering for a while. Its pod may be deleted or drained at any moment.
Then it exits at once and leaves its nodes to the next master, which finds the run folder (on a volume of the
user's, or in the same pod) and continues. If the run folder was lost with the pod, the job fails with that
reason, instead of silently starting over.

Faults of the job end the job. Faults of the cluster (no API server, an unavailable volume, a master that
still holds the run folder) end this process, and the kubelet restarts it.
"""

from __future__ import annotations

import base64
import logging
import os
import queue
import signal
import sys
import threading
import time
from dataclasses import replace
from errno import EACCES, EDQUOT, ENOSPC, EPERM, EROFS
from pathlib import Path
from typing import TYPE_CHECKING

from waitress.server import create_server

from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.backends.kubernetes.client.api_errors import (
    ApiError,
    Forbidden,
    NotThere,
    Unauthorized,
    Unreachable,
)
from dlrover_nb.core.backends.kubernetes.code_check import checked_in_pod, runs_user_code
from dlrover_nb.core.backends.kubernetes.jobs import strays
from dlrover_nb.core.backends.kubernetes.jobs.halt import leave_end
from dlrover_nb.core.backends.kubernetes.jobs.last_snapshot import end_of, without_master
from dlrover_nb.core.backends.kubernetes.jobs.master_status import BEGUN_NOTE, begun_s, has_begun
from dlrover_nb.core.backends.kubernetes.nodes.backend import KubernetesBackend
from dlrover_nb.core.backends.kubernetes.nodes.external_pods import ExternalPods
from dlrover_nb.core.backends.kubernetes.nodes.site import Site
from dlrover_nb.core.backends.kubernetes.operator.operator_managed_pods import OperatorManagedPods
from dlrover_nb.core.backends.kubernetes.operator.plan_follower import PlanFollower
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.disk.paths import HISTORY_VAR
from dlrover_nb.core.driver.calls.certificate import certificate_of
from dlrover_nb.core.driver.calls.http_server import ThreadedServer
from dlrover_nb.core.driver.calls.service import REPORT_PATH, SERVER, MasterService
from dlrover_nb.core.driver.external import external_job, operator_managed_job
from dlrover_nb.core.driver.history_writer import past_costs
from dlrover_nb.core.driver.job_start import traits_of
from dlrover_nb.core.driver.own import own_job
from dlrover_nb.core.driver.past.finished_job import FinishedJob
from dlrover_nb.core.errors import BackendError, DlroverError, JobFailedError
from dlrover_nb.core.manifests.kinds import CONFIG_MAP, ELASTIC_JOB, JOB, OWNERS, POD, SECRET
from dlrover_nb.core.manifests.objects import HTTP_PORT, NAMESPACE_VAR, WIRE_PORT, companions
from dlrover_nb.core.manifests.pod_parts import (
    CERTIFICATE_KEY,
    HTTPS_PORT,
    end_name,
    is_operated,
    report_token,
    run_of,
    secret_name,
)
from dlrover_nb.core.manifests.pods import node_selector
from dlrover_nb.core.master.external.submitted import NO_FEATURES
from dlrover_nb.core.rundir import job_file
from dlrover_nb.core.rundir.node_logs import left_lines
from dlrover_nb.core.rundir.origin import trained_encoding
from dlrover_nb.core.rundir.pruning import prune
from dlrover_nb.core.runtime.checkpoints.first_parameters import note_first
from dlrover_nb.core.runtime.exchange.sockets import JobKeys
from dlrover_nb.core.runtime.node.preflight import validate_packed_job
from dlrover_nb.core.runtime.pod.pod import read_pod_job
from dlrover_nb.core.runtime.pod.staging import receive
from dlrover_nb.core.runtime.process.lasting_imports import collect_rarely
from dlrover_nb.core.runtime.process.output import log_lines
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.kubernetes import STATE
from dlrover_nb.core.structs.wire.pod_contract import CHECK_PATH, IP_VAR, PodJob, state_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.driver.external.external_inputs import StepReports
    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

logger = logging.getLogger(__name__)

END_EVERY_S = 5.0  # between tries to save the last snapshot, while the API server is away, or refuses it
END_TRIES = 120
LOST = (
    "the pod of the job's master was lost, and with it the run folder; mount a volume that outlives pods at "
    f"{STATE} (kubernetes.volumes), and submit the job again"
)
TERMINATED = 128 + signal.SIGTERM
_NEVER = {EACCES, EPERM, EROFS}  # of a volume: permanent


class PodMaster:
    """The master of one job in its pod.

    Parameters
    ----------
    job
        From the job's Secret.
    api
        The API server, at the job's namespace.
    ip
        Address of this pod.
    """

    def __init__(self, job: PodJob, api: Api, *, ip: str) -> None:
        self._job, self._api, self._ip = job, api, ip
        self._name, self._owner = job.spec.name, OWNERS[job.owner]
        self._folder = Path(state_folder(self._name, job.run))
        self._service = MasterService(job.access)
        self._may_go, self._has_ended = threading.Event(), False

    def run(self) -> int:
        """Drive the job to its end; return the exit code."""
        signal.signal(signal.SIGTERM, self._leave)
        server = create_server(self._service, host=self._ip, port=HTTP_PORT, **SERVER)
        threading.Thread(target=server.run, name="http", daemon=True).start()
        owner = self._api.get(self._owner, self._name)
        if (end := self._end()) is not None:
            logger.info("job %s has ended before: nothing to do", self._name)
            return self._code(end)
        last = self._driven(owner)
        self._has_ended = True
        self._service.serve(FinishedJob(last))
        self._leave_end(last, owner)
        logger.info("job %s has %s: %s", self._name, last.phase, last.message)
        self._may_go.wait(self._job.spec.kubernetes.linger_s)
        return self._code(last)

    def _driven(self, owner: Doc) -> JobSnapshot:
        """Drive the job; return its last snapshot."""
        try:
            driver = self._driver(owner)
            driver.start()
        except BackendError:  # of the cluster, an unavailable volume, or a master that still holds the folder
            raise
        except DlroverError as error:
            self._remove_nodes()
            return self._failed(str(error), owner)
        except OSError as error:  # later and transient ones are left to the restarted master
            if has_begun(owner) or not is_of_state(error) or error.errno not in _NEVER:
                raise
            return self._failed(no_state(error, os.getuid()), owner)
        self._service.serve(driver)
        if self._job.spec.kubernetes.keeps_state:
            jobs = self._folder.parent
            threading.Thread(target=prune, args=(jobs, time.time()), name="prune", daemon=True).start()
        self._note_begin(owner)
        follower = PlanFollower(self._job, self._api, driver) if self._owner is ELASTIC_JOB else None
        try:
            driver.join()
        finally:
            if follower is not None:
                follower.close()
        return driver.last_snapshot()

    def _driver(self, owner: Doc) -> own_job.OwnJob | external_job.ExternalJob:
        history = None if os.environ.get(HISTORY_VAR) else f"sqlite:///{self._folder / 'history.db'}"
        site = Site(self._api, owner, f"{_host(self._ip)}:{WIRE_PORT}")
        is_known = (self._folder / job_file.JOB).exists()
        self._remove_other_runs(owner)
        if is_known:
            logger.info("a master of job %s ran before: this one continues", self._name)
        else:
            self._check_first(owner)
        if self._job.spec.foreign is not None:
            return self._external_driver(site, history, is_known=is_known)
        if is_known:
            setup = self._setup(KubernetesBackend(self._job, site), history)
            return own_job.resume(setup, on_progress=self._service.set_resuming)
        job = self._prepared(owner)
        assert job.features is not None
        return own_job.begin(
            job.spec,
            job.features,
            self._setup(KubernetesBackend(job, site), history),
            keys=JobKeys(job.public_key, job.secret_key),
            on_planned=lambda spec, features: self._tell_nodes(
                self._with_costs(replace(job, spec=spec, features=features), history)
            ),
        )

    def _setup(self, backend: KubernetesBackend, history: str | None) -> own_job.RunSetup:
        return own_job.RunSetup(
            backend,
            self._folder,
            history_url=history,
            clock=SystemClock(),
            namespace=self._api.namespace,
        )

    def _external_driver(
        self, site: Site, history: str | None, *, is_known: bool
    ) -> external_job.ExternalJob:
        """Return the driver of an external job, whose programs report here."""
        url = f"http://{_host(self._ip)}:{HTTP_PORT}{REPORT_PATH}"
        reports: StepReports = queue.SimpleQueue()
        job = self._job if is_known else self._with_costs(self._job, history)
        self._tell_nodes(job)
        around = external_job.Surroundings(
            self._folder,
            history,
            SystemClock(),
            url,
            reports,
            self._service.set_resuming,
            self._api.namespace,
            features=self._job.features or NO_FEATURES,
            on_origin=lambda features, origin: self._tell_nodes(
                replace(job, features=features, origin=origin.files)
            ),
        )
        spec = job_file.read_job(self._folder).spec if is_known else self._job.spec
        if is_operated(spec):
            operator = OperatorManagedPods(self._job, site, url)
            if is_known:
                driver = operator_managed_job.resume(operator, around)
            else:
                driver = operator_managed_job.begin(spec, operator, around)
        else:
            self._serve_encrypted()
            pods = ExternalPods(self._job, site)
            driver = external_job.resume(pods, around) if is_known else external_job.begin(spec, pods, around)
        self._service.take_reports(report_token(self._job), reports.put)
        self._service.take_calls(report_token(self._job), around.calls)
        return driver

    def _serve_encrypted(self) -> None:
        """Serve HTTPS too, for programs that report by Kubeflow's protocol, and give them the certificate."""
        self._folder.mkdir(parents=True, exist_ok=True)
        certificate = certificate_of(self._folder, self._ip, SystemClock())
        server = ThreadedServer(self._service, self._ip, HTTPS_PORT)
        server.encryption = certificate.context
        threading.Thread(target=server.serve_forever, name="https", daemon=True).start()
        data = {CERTIFICATE_KEY: base64.b64encode(certificate.text.encode()).decode()}
        self._api.patch(SECRET, secret_name(self._name), {"data": data})

    def _remove_other_runs(self, owner: Doc) -> None:
        """Remove what trains of an earlier run; where an operator makes the pods, they are not this Job's."""
        if is_operated(self._job.spec):
            return
        if n_pod := strays.remove(self._api, self._name, uid=owner["metadata"]["uid"]):
            logger.warning("job %s: %d pods of an earlier run are removed", self._name, n_pod)

    def _check_first(self, owner: Doc) -> None:
        """Refuse to begin a job that had begun: its run folder is lost."""
        if has_begun(owner) or self._nodes():
            raise JobFailedError(LOST)

    def _nodes(self) -> list[Doc]:
        return self._api.list(POD, selector=node_selector(self._name, self._job.run)).items

    def _remove_nodes(self) -> None:
        for node in self._nodes():
            self._api.delete(POD, node["metadata"]["name"])

    def _prepared(self, owner: Doc) -> PodJob:
        """Return the job with what its data determine, and its code in the run folder."""
        job = self._job
        self._service.set_activity("its master validates the data and the code")
        receive(job.spec, self._folder, url=job.code_url)
        if job.first is not None:
            note_first(self._folder, job.first)
        if job.features is not None:
            return job
        if runs_user_code(job.spec):
            url = f"http://{_host(self._ip)}:{HTTP_PORT}{CHECK_PATH}"
            return checked_in_pod(job, self._api, self._service, owner=owner, report_to=url)
        spec, features = validate_packed_job(job.spec, self._folder, trained_encoding(job.spec))
        return replace(job, spec=spec, features=features)

    def _with_costs(self, job: PodJob, history: str | None) -> PodJob:
        """Return a job of ours with what earlier ones of its program measured of mini-batches."""
        if job.features is None:
            return job
        program = traits_of(job.spec, job.features, self._folder).program
        return replace(job, batch_costs=past_costs(history, job.spec, program))

    def _tell_nodes(self, job: PodJob) -> None:
        """Write to the Secret what was determined since the job was submitted."""
        if job == self._job:
            return
        (secret, *_) = companions(job, code={}, namespace=self._api.namespace)
        self._api.patch(SECRET, secret_name(self._name), {"data": secret["data"]})

    def _note_begin(self, owner: Doc) -> None:
        """Annotate the owner that the job began; without that a lost run folder would not be noticed."""
        if has_begun(owner):
            return
        note = {"metadata": {"annotations": {BEGUN_NOTE: f"{time.time():.3f}"}}}
        try:
            self._api.patch(self._owner, self._name, note)
        except ApiError as error:
            logger.warning("job %s could not be marked as begun: %s", self._name, error)

    def _failed(self, why: str, owner: Doc) -> JobSnapshot:
        now_s = time.time()
        started_s = begun_s(owner) or now_s
        return without_master(self._job, JobPhase.FAILED, why, at_s=now_s, started_at_s=started_s)

    def _end(self) -> JobSnapshot | None:
        """Return the last snapshot of this run; None: it has not ended."""
        try:
            end = self._api.get(CONFIG_MAP, end_name(self._name))
        except NotThere:
            return None
        return end_of(end) if run_of(end) == self._job.run else None

    def _code(self, last: JobSnapshot) -> int:
        """Return the exit code: a Job starts failed masters again, an ElasticJob fails by the code 1."""
        return int(self._owner is ELASTIC_JOB and last.phase is JobPhase.FAILED)

    def _leave_end(self, last: JobSnapshot, owner: Doc) -> None:
        """Save the last snapshot in the cluster, with the last lines of the nodes."""
        lines = left_lines(self._folder)
        for _ in range(END_TRIES):
            try:
                leave_end(self._api, last, run=self._job.run, owner=owner, lines=lines)
            except (Unreachable, Forbidden, Unauthorized) as error:  # a right may come back too
                logger.warning("reporting the end of job %s again: %s", self._name, error)
                time.sleep(END_EVERY_S)
            except ApiError as error:
                logger.warning("the end of job %s cannot be recorded: %s", self._name, error)
                return
            else:
                return

    def _leave(self, _signal: int, _frame: FrameType | None) -> None:
        """Exit: at once while the job runs, as if killed, so that its nodes keep running."""
        if self._has_ended:
            self._may_go.set()
        else:
            os._exit(TERMINATED)  # not 0: the Job controller would take the job as done


def _host(ip: str) -> str:
    return f"[{ip}]" if ":" in ip else ip


def main() -> int:
    """Run this pod's master; return the exit code."""

    def start() -> int:
        job = read_pod_job()
        api = connect_api(namespace=os.environ[NAMESPACE_VAR])
        return PodMaster(job, api, ip=os.environ[IP_VAR]).run()

    return exit_code_of(start)


def exit_code_of(start: Callable[[], int], *, owner: str = JOB.name) -> int:
    """Return the exit code of a master's program.

    An error of the cluster, or of a volume, may pass: the code says that another master should begin.
    DLRover's operator fails its job at once by the code 1, a Job begins again by any but 0.
    """
    collect_rarely()
    log_lines()
    again = TERMINATED if owner == ELASTIC_JOB.name else 1
    try:
        return start()
    except BackendError as error:
        logger.error("%s", error)  # noqa: TRY400 - as above
        return again
    except DlroverError as error:
        logger.error("%s", error)  # noqa: TRY400 - as above
        return 1
    except OSError as error:
        if is_of_state(error):
            logger.error("%s", no_state(error, os.getuid()))  # noqa: TRY400 - as above
        else:
            logger.exception("the master's program failed")
        return again


def is_of_state(error: OSError) -> bool:
    """Whether an error concerns the volume of run folders."""
    return str(error.filename or "").startswith(STATE) or error.errno in {ENOSPC, EDQUOT}


def no_state(error: OSError, user: int) -> str:
    """Return what is wrong with the volume of run folders, and what to do."""
    return (
        f"expected the volume at {STATE} to be writable for user {user}, got: {error.strerror} "
        f"({error.filename or 'no file named'}); let that user write there, or make room, and submit again"
    )


if __name__ == "__main__":
    sys.exit(main())
