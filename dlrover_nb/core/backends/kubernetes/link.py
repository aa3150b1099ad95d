"""The way of a client to a job's master: calls through the API server's proxy of the master's pod.

The pod has no fixed name: it is looked up by its labels when it is not known, or no longer answers. What
then is found decides: a master that begins (an image is pulled, no machine has room) is no error but a job
that has not begun, one that comes back is waited for, and of a job that ended the last picture is shown.
"""

from __future__ import annotations

import base64
import contextlib
import time
from typing import TYPE_CHECKING, TypeVar

from dlrover_nb.core import errors
from dlrover_nb.core.backends.kubernetes.api_errors import Forbidden, NotThere, PodAnswered, Unreachable
from dlrover_nb.core.backends.kubernetes.dryrun import Judged, judge
from dlrover_nb.core.backends.kubernetes.finished_job import FinishedJob, end_of, without_master
from dlrover_nb.core.backends.kubernetes.halt import halt
from dlrover_nb.core.backends.kubernetes.master_status import (
    Answering,
    Beginning,
    Over,
    Replaced,
    master_status,
    why_not_made,
)
from dlrover_nb.core.backends.kubernetes.model import make_run_folder
from dlrover_nb.core.backends.kubernetes.rpc import (
    ANSWERS,
    CALLS,
    AskExplain,
    AskLogs,
    AskModel,
    AskSeries,
    AskSnapshot,
    AskSummary,
    AskWeigh,
    CallHandler,
    Choose,
    Decide,
    Done,
    Failed,
    Lines,
    NotBegun,
    SnapshotReply,
    Stop,
    Unchanged,
    Weights,
)
from dlrover_nb.core.backends.kubernetes.service import ACCESS_HEADER, CALL_PATH
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.errors import BackendError, NotFoundError
from dlrover_nb.core.manifests.kinds import CONFIG_MAP, EVENT, JOB, POD, SECRET
from dlrover_nb.core.manifests.objects import HTTP_PORT
from dlrover_nb.core.manifests.parts import (
    JOB_LABEL,
    MASTER_ROLE,
    ROLE_LABEL,
    RUN_LABEL,
    end_name,
    run_of,
    secret_name,
)
from dlrover_nb.core.rundir.bundle import CheckpointBundle
from dlrover_nb.core.structs.decisions import Decision
from dlrover_nb.core.structs.job import JobPhase
from dlrover_nb.core.structs.pods import PodJob
from dlrover_nb.core.structs.questions import Explanation
from dlrover_nb.core.structs.shards import ShardChoice
from dlrover_nb.core.structs.snapshot import SeriesChunk
from dlrover_nb.core.structs.summary import JobSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from dlrover_nb.core.backends.kubernetes.api import Api
    from dlrover_nb.core.backends.kubernetes.rpc import Answer, Call
    from dlrover_nb.core.manifests.parts import Doc
    from dlrover_nb.core.structs.questions import LogLine, Weighed
    from dlrover_nb.core.structs.resources import ResourcePlan
    from dlrover_nb.core.structs.shards import UserChoice
    from dlrover_nb.core.structs.snapshot import JobSnapshot

T = TypeVar("T")

CALL_LIMIT_S = 20.0
LOOK_BACK_S = 5.0  # as below, for who only looks: he is to see soon that nobody answers, and looks again
KNOWN_LIMIT_S = 5.0  # for a picture from where the master was last: the pod may be gone with its machine
LOOK_LIMIT_S = 10.0  # for one answer to him: a master that is short of cores takes seconds
MODEL_LIMIT_S = 120.0  # for the largest model that is sent
BACK_LIMIT_S = 60.0  # for a master that comes back: a pod, its imports, its journal; or for the API server
BACK_EVERY_S = 0.5


class KubernetesLink:
    """Way to a job master through the pod proxy; fits `MasterLink`.

    Parameters
    ----------
    api
        The API server, at the job's namespace.
    job
        The job as its Secret says it, with the token that a request must carry.
    back_limit_s, limit_s
        Seconds to wait for a master, or an API server, that is to come back, and for one answer.
    sleep, monotonic
        How to wait, and seconds that only grow.
    """

    def __init__(
        self,
        api: Api,
        job: PodJob,
        *,
        back_limit_s: float = BACK_LIMIT_S,
        limit_s: float = CALL_LIMIT_S,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._job, self._name = api, job, job.spec.name
        self._back_limit_s, self._limit_s = back_limit_s, limit_s
        self._sleep, self._monotonic = sleep, monotonic
        self._pod: str | None = None
        self._picture: SnapshotReply | None = None
        self._ended: FinishedJob | None = None
        self._desk = CallHandler("ended")
        self._since_s = time.time()

    def with_short_timeout(self) -> KubernetesLink:
        """Return the same way for who only looks: within seconds it tells that nobody answers."""
        other = KubernetesLink(
            self._api.with_short_timeout(LOOK_BACK_S),
            self._job,
            back_limit_s=LOOK_BACK_S,
            limit_s=LOOK_LIMIT_S,
            sleep=self._sleep,
            monotonic=self._monotonic,
        )
        other._pod, other._picture, other._ended = self._pod, self._picture, self._ended
        other._since_s = self._since_s
        return other

    def judge(self, documents: Iterable[Doc]) -> tuple[Judged, ...]:
        """Return what the API server would do with documents."""
        return judge(self._api, documents)

    def snapshot(self) -> JobSnapshot:
        """Return the newest picture of the job; one without nodes before its master begins."""
        last = self._picture
        answer = self._ask(AskSnapshot(last.tag if last else ""))
        match answer:
            case SnapshotReply():
                self._picture = answer
                return answer.snapshot
            case NotBegun(why):
                return self._without_master(JobPhase.STARTING, why)
            case Unchanged() if last is not None:
                return last.snapshot
        raise _unexpected(answer)

    def summary(self, pod: str, *, timeout_s: float) -> JobSummary | None:
        """Return the one line that a list of jobs shows; None when the master in `pod` does not tell it."""
        self._pod = pod
        answer = self._ask_once(AskSummary(), timeout_s)
        return answer if isinstance(answer, JobSummary) else None

    def series(self, cursor: int) -> SeriesChunk:
        """Return telemetry newer than `cursor`."""
        answer = self._ask(AskSeries(cursor))
        return SeriesChunk(cursor, {}, {}) if isinstance(answer, NotBegun) else _is(SeriesChunk, answer)

    def decide(self, decision: Decision) -> Decision:
        """Hand in a decision; one whose answer was lost is not handed in again."""
        return _is(Decision, self._ask(Decide(decision), is_once=True))

    def weigh(self, plans: tuple[ResourcePlan, ...]) -> tuple[Weighed, ...]:
        """Say of each plan what it would bring, and why a decision for it would be refused now."""
        return _is(Weights, self._ask(AskWeigh(plans))).weighed

    def explain(self, proposal: str | None) -> Explanation:
        """Say why a proposal was made."""
        return _is(Explanation, self._ask(AskExplain(proposal)))

    def logs(self, node: str | None, n_line: int) -> tuple[LogLine, ...]:
        """Return the newest lines that a node wrote, or all nodes together."""
        return _is(Lines, self._ask(AskLogs(node, n_line))).lines

    def choose(self, choice: UserChoice) -> None:
        """Decide about a shard in quarantine, or about batch sizes."""
        call = Choose(shard=choice) if isinstance(choice, ShardChoice) else Choose(batches=choice)
        _is(Done, self._ask(call, is_once=True))

    def stop(self, by: str, why: str) -> None:
        """End the job's nodes; a job whose master has not begun is ended without it."""
        answer = self._ask(Stop(by, why))
        if isinstance(answer, NotBegun):
            told = f"stopped by {by}{f': {why}' if why else ''}, before it began"
            last = self._without_master(JobPhase.STOPPED, told)
            halt(self._api, last, run=self._job.run, why_not=answer.why)
        else:
            _is(Done, answer)

    def fetch_model(self, into: Path) -> Path:
        """Make what a model is loaded from; see `make_run_folder`."""
        job = read_job(self._api, self._name)
        if job.run != self._job.run:
            raise NotFoundError(
                f"this run of job {self._name} is over and another one is there; attach {self._name}"
            )
        ask = lambda: _is(CheckpointBundle, self._ask(AskModel(), limit_s=MODEL_LIMIT_S))  # noqa: E731 - a question
        return make_run_folder(self._api, job, into, ask)

    def _ask(self, call: Call, *, is_once: bool = False, limit_s: float = 0.0) -> Answer:
        """Ask the master; a question whose answer was lost with it is put again when it is back."""
        end_s = self._monotonic() + (0.0 if is_once else self._back_limit_s)
        while True:
            try:
                answer = self._ask_once(call, limit_s or self._limit_s)
            except Unreachable:
                if self._monotonic() >= end_s:
                    raise
            else:
                if not isinstance(answer, NotBegun) or self._picture is None:
                    return _raised(answer)
                if self._monotonic() >= end_s:
                    raise BackendError(
                        f"the master of job {self._name} is gone and comes back ({answer.why}); try again"
                    )
            self._sleep(BACK_EVERY_S)

    def _ask_once(self, call: Call, limit_s: float) -> Answer:
        """Ask where the master was last, else look for it; where there is no pod, nothing was delivered."""
        if self._ended is not None:
            return self._desk.answer(self._ended, call)
        if self._pod is not None and isinstance(call, AskSnapshot | AskSeries):
            with contextlib.suppress(NotThere, Unreachable):
                return self._ask_pod(self._pod, call, min(limit_s, KNOWN_LIMIT_S))
        elif self._pod is not None:
            with contextlib.suppress(NotThere):
                return self._ask_pod(self._pod, call, limit_s)
        found = self._find(call)
        if not isinstance(found, str):
            return found
        self._pod = found
        try:
            return self._ask_pod(found, call, limit_s)
        except NotThere:
            return NotBegun("its master's pod is gone")

    def _ask_pod(self, pod: str, call: Call, limit_s: float) -> Answer:
        headers = {ACCESS_HEADER: self._job.access, "Content-Type": "application/octet-stream"}
        try:
            return ANSWERS.unpack(
                self._api.proxy(pod, HTTP_PORT, CALL_PATH, CALLS.pack(call), headers, limit_s)
            )
        except PodAnswered as error:
            raise BackendError(self._refusal(error)) from None
        except (NotThere, Unreachable):
            self._pod = None
            raise

    def _find(self, call: Call) -> str | Answer:
        """Return the master's pod, or what is to be answered in its place."""
        selector = f"{JOB_LABEL}={self._name},{RUN_LABEL}={self._job.run},{ROLE_LABEL}={MASTER_ROLE}"
        try:
            job = self._api.get(JOB, self._name)
        except NotThere as error:
            raise NotFoundError(
                f"job {self._name} was deleted from namespace {self._api.namespace}; submit it again"
            ) from error
        pods = self._api.list(POD, selector=selector).items
        match master_status(job, pods, run=self._job.run):
            case Answering(pod):
                return pod
            case Beginning(why):
                return NotBegun(why if pods else self._why_not_made(job) or why)
            case Over(why):
                self._ended = FinishedJob(self._last_picture(why))
                return self._desk.answer(self._ended, call)
            case Replaced():
                raise NotFoundError(
                    f"this run of job {self._name} is over and another one is there; attach {self._name}"
                )

    def _why_not_made(self, job: Doc) -> str:
        fields = f"involvedObject.kind=Job,involvedObject.uid={job['metadata']['uid']}"
        try:
            return why_not_made(self._api.list(EVENT, fields=fields).items)
        except Forbidden:
            return ""

    def _last_picture(self, why: str) -> JobSnapshot:
        """Return the picture that was left of this run; one of a run before may not be cleared away yet."""
        with contextlib.suppress(NotThere):
            end = self._api.get(CONFIG_MAP, end_name(self._name))
            if run_of(end) == self._job.run:
                return end_of(end)
        told = f"its master failed: {why}" if why else "its master left no word of how it ended"
        if self._picture is not None and self._picture.snapshot.phase.is_final:
            return self._picture.snapshot
        return self._without_master(JobPhase.FAILED, told)

    def _without_master(self, phase: JobPhase, why: str) -> JobSnapshot:
        return without_master(self._job, phase, why, at_s=time.time(), started_at_s=self._since_s)

    def _refusal(self, error: PodAnswered) -> str:
        if error.status == 401:
            return (
                f"the master of job {self._name} does not take this client's access token: it is of "
                f"another run; attach {self._name} again"
            )
        return (
            f"the master of job {self._name} refused a call ({error.status}); use its own release to ask it"
        )


def read_job(api: Api, name: str) -> PodJob:
    """Return what a job is, as its Secret says.

    Raises
    ------
    NotThere
        When there is none of that name.
    BackendError
        When it says nothing yet.
    """
    told = (api.get(SECRET, secret_name(name)).get("data") or {}).get("job.json")
    if told is None:  # it was started from an exported file
        raise BackendError(f"job {name} has not begun: its master makes its keys first; try again then")
    return from_json(base64.b64decode(told), PodJob)


def _raised(answer: Answer) -> Answer:
    """Return the answer, or raise what it tells of."""
    if isinstance(answer, Failed):
        raise getattr(errors, answer.error, BackendError)(answer.text)
    return answer


def _is(kind: type[T], answer: Answer) -> T:
    if isinstance(answer, kind):
        return answer
    if isinstance(answer, NotBegun):
        raise BackendError(f"the job has not begun: {answer.why}; try again when it has")
    raise _unexpected(answer)


def _unexpected(answer: Answer) -> BackendError:
    return BackendError(
        f"the job's master answered with a {type(answer).__name__}; use its own release to ask it"
    )
