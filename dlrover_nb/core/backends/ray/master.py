"""The job master as a detached Ray actor: it outlives notebooks, dashboards and their crashes.

The actor holds one `JobLoop`, and its method `answer` takes all calls; Ray runs it in a pool of threads. On
the local head the same calls come over loopback too (`near_masters`). When its process is killed Ray restarts
it, and it resumes from its run folder with the nodes that still run.

A client and a master of different releases either understand each other's calls or get one line of refusal.
"""

from __future__ import annotations

import logging
import os
import queue
import secrets
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray._private import state
from ray.exceptions import GetTimeoutError, RayActorError, RayError

from dlrover_nb.core import errors
from dlrover_nb.core.backends.ray.near_masters import write_address
from dlrover_nb.core.backends.ray.reach import NAMESPACE, check_reachable
from dlrover_nb.core.client.link.call_ends import CallHandler, CallLink, unpack_answer
from dlrover_nb.core.client.link.calls import ANSWERS, CALLS, ONCE, Failed
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.errors import AwayError, BackendError, InvalidValueError, WireError
from dlrover_nb.core.rundir.job_file import JOB
from dlrover_nb.core.rundir.pruning import prune
from dlrover_nb.core.runtime.process.lasting_imports import collect_rarely, lasting_imports
from dlrover_nb.core.structs.data.features import FeatureSpec
from dlrover_nb.core.structs.decisions.call_rights import BY_TOKEN_ALONE
from dlrover_nb.core.structs.job.job import DEFAULT_PLAN, DEFAULT_POLICY, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Admission

if TYPE_CHECKING:
    from dlrover_nb.core.backends.programs.running import ProgramSetup
    from dlrover_nb.core.client.link.calls import Answer, Call
    from dlrover_nb.core.driver.external.external_inputs import StepReports
    from dlrover_nb.core.driver.loop.job_loop import JobLoop

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S = 30.0
BACK_LIMIT_S = 20.0  # for a killed master to restart: a process, its imports, its journal
BACK_EVERY_S = 0.25


class MasterActor:
    """The actor of one job: answers calls about it, while its loop runs."""

    def _drive(self, driver: JobLoop[Any], folder: Path) -> None:
        """Let the loop of the job in a run folder run."""
        self._driver = driver
        driver.start()
        self._calls = CallHandler(driver)
        threading.Thread(target=prune, args=(folder.parent, time.time()), name="prune", daemon=True).start()

    def answer(self, call: bytes) -> bytes:
        """Answer an encoded call of `core.client.link.calls`."""
        try:
            return self._calls.answer_packed(call)
        except WireError:
            return ANSWERS.pack(Failed("BackendError", other_release(self._driver.spec.name)))

    def pid(self) -> int:
        """Return the actor's process id."""
        return os.getpid()


def _refuse_release_0_1(self: MasterActor, *_: object) -> tuple[str, str]:
    return ("BackendError", other_release(self._driver.spec.name))


for _call in ("snapshot", "summary", "series", "decide", "weigh", "explain", "logs", "choose", "stop"):
    # A client of release 0.1 calls these; without them it reports an attribute error of Ray's.
    setattr(MasterActor, _call, _refuse_release_0_1)


class RayMaster(MasterActor):
    """The actor of one of our own jobs.

    Parameters
    ----------
    spec_json, features_json
        The job and its encoded features.
    folder
        Its run folder.
    one_host
        Whether all of the cluster is one machine.
    """

    def __init__(self, spec_json: bytes, features_json: bytes, folder: str, *, one_host: bool) -> None:
        # A client imports this module too, for `RayLink`; the job's loop would double the time that takes.
        from dlrover_nb.core.backends.ray.backend import RayBackend  # noqa: PLC0415 - see above

        spec, path = from_json(spec_json, JobSpec), Path(folder)
        backend = RayBackend(spec.name, one_host=one_host, keeps_spare=True)
        is_new = not (path / JOB).exists()  # else Ray restarted this actor after its process was killed
        if is_new and starts_as_submitted(spec):
            backend.prepare(spec.plan)
        try:
            with lasting_imports():
                from dlrover_nb.core.driver.own import own_job  # noqa: PLC0415 - while the first nodes import

            collect_rarely()
            setup = own_job.RunSetup(backend, path, history_url=None, clock=SystemClock())
            features = from_json(features_json, FeatureSpec)
            driver = own_job.begin(spec, features, setup) if is_new else own_job.resume(setup)
        except BaseException:
            if is_new:
                backend.close()
            raise
        self._drive(driver, path)
        if one_host:
            answer_near(self._driver, path)


class RayProgramsMaster(MasterActor):
    """The actor of an external job, to which its programs report over HTTP.

    Parameters
    ----------
    spec_json, features_json
        The job, and the columns of its data, where they are known.
    folder
        Its run folder.
    setup
        How its programs are run.
    """

    def __init__(self, spec_json: bytes, features_json: bytes, folder: str, setup: ProgramSetup) -> None:
        from dlrover_nb.core.backends.ray.programs import RayPrograms  # noqa: PLC0415 - as above
        from dlrover_nb.core.driver.calls.certificate import certificate_of  # noqa: PLC0415 - as above
        from dlrover_nb.core.driver.calls.http_server import LOOPBACK, ThreadedServer  # noqa: PLC0415 - as above
        from dlrover_nb.core.driver.calls.service import REPORT_PATH, MasterService  # noqa: PLC0415 - as above
        from dlrover_nb.core.driver.external import external_job  # noqa: PLC0415 - as above

        spec, path = from_json(spec_json, JobSpec), Path(folder)
        service = MasterService(access := secrets.token_hex(32), BY_TOKEN_ALONE)
        host = LOOPBACK if setup.is_here else ray.util.get_node_ip_address()
        server, clock = ThreadedServer(service, host), SystemClock()
        certificate = certificate_of(path, host, clock)
        server.encryption = certificate.context
        reports: StepReports = queue.SimpleQueue()
        service.take_reports(setup.token, reports.put)
        features = from_json(features_json, FeatureSpec)
        around = external_job.Surroundings(
            path, None, clock, server.url + REPORT_PATH, reports, features=features
        )
        service.take_calls(setup.token, around.calls)
        threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
        backend = RayPrograms(spec.name, replace(setup, certificate=certificate.text))
        if (path / JOB).exists():
            self._drive(external_job.resume(backend, around), path)
        else:
            self._drive(external_job.begin(spec, backend, around), path)
        if setup.is_here:
            service.serve(self._driver)
            write_address(path, server.server_port, access)


def answer_near(driver: JobLoop[Any], folder: Path) -> None:
    """Answer calls about a job on loopback too, and write where; without that they come by Ray."""
    from dlrover_nb.core.driver.calls.http_server import ThreadedServer  # noqa: PLC0415 - for masters alone
    from dlrover_nb.core.driver.calls.service import MasterService  # noqa: PLC0415 - as above

    service = MasterService(access := secrets.token_hex(32), BY_TOKEN_ALONE)
    service.serve(driver)
    try:
        server = ThreadedServer(service)
    except OSError as error:
        logger.warning("calls come to this master by Ray alone, as it got no port: %s", error)
        return
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    write_address(folder, server.server_port, access)


def starts_as_submitted(spec: JobSpec) -> bool:
    """Whether a job starts its nodes at once, and certainly on the plan that it was submitted with.

    The plan of others depends on past jobs, or on the cluster; `core.driver.own.own_job.begin` finds it.
    """
    is_ours = spec.plan == DEFAULT_PLAN and (spec.due_s(0.0) is not None or spec.policy != DEFAULT_POLICY)
    return spec.admission is Admission.AT_ONCE and not spec.warm_start and not is_ours


def create_master(kind: type[MasterActor], name: str, *arguments: object, **named: object) -> Any:  # noqa: ANN401 - Ray's handle has no public type
    """Return the new master of a job, an actor of a class, made with these arguments.

    Raises
    ------
    InvalidValueError
        When there is a job of this name.
    """
    options = {
        "name": name,
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "num_cpus": 0,
        "max_concurrency": 16,
        "max_restarts": -1,
    }
    try:
        return ray.remote(kind).options(**options).remote(*arguments, **named)
    except ValueError as error:  # the name was taken since it was checked
        raise InvalidValueError(
            f"a job named {name} was submitted at the same moment; choose another name"
        ) from error


def other_release(job: str) -> str:
    """Report that client and master are of incompatible releases."""
    return (
        f"the master of job {job} is of another release of dlrover-nb; use the release that the job was "
        "submitted with, or submit it again"
    )


class RayLink(CallLink):
    """Link to a job's master through its actor handle."""

    def __init__(self, job: str, actor: Any) -> None:  # noqa: ANN401 - Ray's handle has no public type
        super().__init__()
        self._job, self._actor = job, actor

    def send(self, call: Call) -> Answer:
        """Call the actor; a call whose answer was lost with it is sent again when Ray has restarted it."""
        end_s = time.monotonic() + (0.0 if isinstance(call, ONCE) else BACK_LIMIT_S)
        while True:
            check_reachable()
            try:
                return self._ask(CALLS.pack(call))
            except RayActorError as error:
                check_reachable()  # it may be gone because all of Ray is
                self._check_coming_back(error)
                if time.monotonic() > end_s:
                    raise AwayError(
                        f"the master of job {self._job} was killed and is coming back; try again"
                    ) from error
            time.sleep(BACK_EVERY_S)

    def _ask(self, call: bytes) -> Answer:
        if not hasattr(self._actor, "answer"):
            raise BackendError(other_release(self._job))
        try:
            data = ray.get(self._actor.answer.remote(call), timeout=CALL_TIMEOUT_S)
        except GetTimeoutError as error:
            raise AwayError(
                f"the master of job {self._job} did not answer within {CALL_TIMEOUT_S:g} s; "
                "it may still be starting: try again"
            ) from error
        except RayActorError:
            raise
        except (RayError, ConnectionError) as error:
            raise BackendError(f"Ray cannot be reached ({error}); connect again") from error
        except Exception as error:  # for a handle of a cluster that ended Ray raises no class of its own
            raise BackendError(f"job {self._job} is not on this Ray ({error}); submit it again") from error
        return unpack_answer(data)

    def _check_coming_back(self, error: RayActorError) -> None:
        """Refuse to wait for a master that Ray does not restart."""
        try:
            row = state.actors(self._actor._actor_id.hex())  # noqa: SLF001 - the one way to an actor's row
        except (RayError, ConnectionError) as gone:
            raise BackendError(f"Ray cannot be reached ({gone}); connect again") from gone
        if row and row["State"] == "DEAD":
            if (why := _why_not_begun(error)) is not None:
                raise BackendError(f"the master of job {self._job} could not begin: {why}") from error
            raise BackendError(
                f"the master of job {self._job} is gone ({error.__class__.__name__}); "
                "submit the job again, its history is kept"
            ) from error


def _why_not_begun(error: RayActorError) -> str | None:
    """Return the error that ended an actor at its start: the last line of Ray's traceback."""
    text = str(error)
    if "creation task" not in text:
        return None
    last = text.strip().splitlines()[-1].strip()
    kind, _, words = last.partition(": ")
    return words if words and hasattr(errors, kind.rpartition(".")[2]) else last
