"""The job master as a detached Ray actor: it outlives notebooks, dashboards and their crashes.

The actor holds one `JobDriver` and answers calls from its thread pool; each call returns a plain pair, so
that an error meant for the user arrives as itself and not wrapped in Ray's traceback. When its process is
killed Ray makes it again, and it goes on from its run folder with the nodes that live on meanwhile.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray._private import state
from ray.exceptions import GetTimeoutError, RayActorError, RayError

from dlrover_nb.core import errors
from dlrover_nb.core.backends.ray.backend import RayBackend, check_reachable
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.driver.own_job import JobDriver
from dlrover_nb.core.errors import BackendError, DlroverError
from dlrover_nb.core.rundir.job_file import JOB
from dlrover_nb.core.rundir.pruning import prune
from dlrover_nb.core.structs.job import FeatureSpec, JobSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.decisions import Decision
    from dlrover_nb.core.structs.questions import Explanation, LogLine, Weighed
    from dlrover_nb.core.structs.resources import ResourcePlan
    from dlrover_nb.core.structs.shards import UserChoice
    from dlrover_nb.core.structs.snapshot import JobSnapshot, SeriesChunk

CALL_TIMEOUT_S = 30.0
BACK_LIMIT_S = 20.0  # for a killed master to come back: a process, its imports, its journal
BACK_EVERY_S = 0.25

Answer = tuple[str, Any]


class RayMaster:
    """The actor of one job.

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
        spec, path, clock = from_json(spec_json, JobSpec), Path(folder), SystemClock()
        backend = RayBackend(spec.name, path, one_host=one_host)
        if (path / JOB).exists():  # Ray made this actor again, after its process was killed
            self._driver = JobDriver.resume(backend, folder=path, history_url=None, clock=clock)
        else:
            features = from_json(features_json, FeatureSpec)
            self._driver = JobDriver(spec, features, backend, folder=path, history_url=None, clock=clock)
        self._driver.start()
        threading.Thread(target=prune, args=(path.parent, time.time()), name="prune", daemon=True).start()

    def snapshot(self) -> Answer:
        """Answer with a `JobSnapshot`."""
        return _answer(self._driver.snapshot)

    def summary(self) -> Answer:
        """Answer with a `JobSummary`: a picture of each of a hundred jobs is too much for each second."""
        return _answer(self._driver.summary)

    def series(self, cursor: int) -> Answer:
        """Answer with a `SeriesChunk`."""
        return _answer(lambda: self._driver.series(cursor))

    def decide(self, decision: Decision) -> Answer:
        """Answer with the decision as it was taken."""
        return _answer(lambda: self._driver.decide(decision))

    def weigh(self, plans: tuple[ResourcePlan, ...]) -> Answer:
        """Answer with a `Weighed` for each plan."""
        return _answer(lambda: self._driver.weigh(plans))

    def explain(self, proposal: str | None) -> Answer:
        """Answer with an `Explanation`."""
        return _answer(lambda: self._driver.explain(proposal))

    def logs(self, node: str | None, n_line: int) -> Answer:
        """Answer with each `LogLine`."""
        return _answer(lambda: self._driver.logs(node, n_line))

    def choose(self, choice: UserChoice) -> Answer:
        """Decide about a shard in quarantine."""
        return _answer(lambda: self._driver.choose(choice))

    def stop(self, by: str, why: str) -> Answer:
        """End the job."""
        return _answer(lambda: self._driver.stop(by, why))

    def pid(self) -> int:
        """Return the actor's process id."""
        return os.getpid()


def _answer(call: Callable[[], object]) -> Answer:
    try:
        return ("ok", call())
    except DlroverError as error:
        return (type(error).__name__, str(error))


class RayLink:
    """Way to a job master through its actor handle (a `MasterLink`)."""

    def __init__(self, job: str, actor: Any) -> None:  # noqa: ANN401 - Ray's handle has no public type
        self._job = job
        self._actor = actor

    def snapshot(self) -> JobSnapshot:
        """Return the newest picture of the job."""
        return self._call("snapshot")  # type: ignore[no-any-return]  # Ray's answers carry no type

    def series(self, cursor: int) -> SeriesChunk:
        """Return telemetry newer than `cursor`."""
        return self._call("series", cursor)  # type: ignore[no-any-return]  # as above

    def decide(self, decision: Decision) -> Decision:
        """Hand in a decision."""
        return self._call("decide", decision)  # type: ignore[no-any-return]  # as above

    def weigh(self, plans: tuple[ResourcePlan, ...]) -> tuple[Weighed, ...]:
        """Say of each plan what it would bring, and why a decision for it would be refused now."""
        return self._call("weigh", plans)  # type: ignore[no-any-return]  # as above

    def explain(self, proposal: str | None) -> Explanation:
        """Say why a proposal was made."""
        return self._call("explain", proposal)  # type: ignore[no-any-return]  # as above

    def logs(self, node: str | None, n_line: int) -> tuple[LogLine, ...]:
        """Return the newest lines that a node wrote, or all nodes together."""
        return self._call("logs", node, n_line)  # type: ignore[no-any-return]  # as above

    def choose(self, choice: UserChoice) -> None:
        """Decide about a shard in quarantine."""
        self._call("choose", choice)

    def stop(self, by: str, why: str) -> None:
        """End the job's nodes."""
        self._call("stop", by, why)

    def _call(self, method: str, *arguments: object) -> Any:  # noqa: ANN401 - as above
        """Ask the master; a question whose answer was lost with it is put again when it is back."""
        until = time.monotonic() + (BACK_LIMIT_S if method != "decide" else 0.0)
        while True:
            check_reachable()
            try:
                return self._ask(method, *arguments)
            except RayActorError as error:
                check_reachable()  # it may be gone because all of Ray is
                self._check_coming_back(error)
                if time.monotonic() > until:
                    raise BackendError(
                        f"the master of job {self._job} was killed and is coming back; try again"
                    ) from error
            time.sleep(BACK_EVERY_S)

    def _ask(self, method: str, *arguments: object) -> Any:  # noqa: ANN401 - as above
        try:
            answer = getattr(self._actor, method).remote(*arguments)
            verdict, value = ray.get(answer, timeout=CALL_TIMEOUT_S)
        except GetTimeoutError as error:
            raise BackendError(
                f"the master of job {self._job} did not answer within {CALL_TIMEOUT_S:g} s; "
                "it may still be starting: try again"
            ) from error
        except RayActorError:
            raise
        except (RayError, ConnectionError) as error:
            raise BackendError(f"Ray cannot be reached ({error}); connect again") from error
        except Exception as error:  # for a handle of a cluster that ended Ray raises no class of its own
            raise BackendError(f"job {self._job} is not on this Ray ({error}); submit it again") from error
        if verdict != "ok":
            raise getattr(errors, verdict, BackendError)(value)
        return value

    def _check_coming_back(self, error: RayActorError) -> None:
        """Refuse to wait for a master that Ray does not make again."""
        try:
            told = state.actors(self._actor._actor_id.hex())  # noqa: SLF001 - the one way to an actor's row
        except (RayError, ConnectionError) as gone:
            raise BackendError(f"Ray cannot be reached ({gone}); connect again") from gone
        if told and told["State"] == "DEAD":
            if (why := _why_not_begun(error)) is not None:
                raise BackendError(f"the master of job {self._job} could not begin: {why}") from error
            raise BackendError(
                f"the master of job {self._job} is gone ({error.__class__.__name__}); "
                "submit the job again, its history is kept"
            ) from error


def _why_not_begun(error: RayActorError) -> str | None:
    """Return what ended an actor in its very beginning; Ray tells it as the last line of a traceback."""
    text = str(error)
    if "creation task" not in text:
        return None
    last = text.strip().splitlines()[-1].strip()
    kind, _, told = last.partition(": ")
    return told if told and hasattr(errors, kind.rpartition(".")[2]) else last
