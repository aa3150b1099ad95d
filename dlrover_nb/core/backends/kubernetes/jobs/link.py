"""Client link to a job's master: calls through the API server's proxy of the master's pod.

The pod has no fixed name. It is looked up by its labels when unknown, or when it no longer answers. The
status of its owner (a Job, or an ElasticJob) and its pods then decides: a starting master (its image is
pulled, no machine has room) is no error but a job that has not begun, a replaced master is waited for, and
for an ended job its last snapshot is returned.

For the model of a job a run folder is rebuilt (`make_run_folder`). The job is in its Secrets, so no running
master is needed where checkpoints are kept at a URL that the client reads too. Where they are on a volume of
the pods, the master sends the newest one.

Each call goes to the master's pod with the weakest method and token that its right needs. So a client that
only looks sends GETs with a token that only shows: that is all its role must allow, and all that can be read
on the plain HTTP between the API server and the pod.

A master of an earlier release knows only POSTs with the job's own token, and refuses all else before it does
anything. It gets that then, from a client that may read the token. Nothing is won by pretending to be such a
master: a client that can answer in its pod's place could read the Secret in that pod too.
"""

from __future__ import annotations

import base64
import contextlib
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.api_errors import (
    Forbidden,
    NotThere,
    PodAnswered,
    Unreachable,
)
from dlrover_nb.core.backends.kubernetes.jobs.dryrun import DryRunResult, judge
from dlrover_nb.core.backends.kubernetes.jobs.halt import halt
from dlrover_nb.core.backends.kubernetes.jobs.last_snapshot import finished, without_master
from dlrover_nb.core.backends.kubernetes.jobs.master_status import (
    Answering,
    Beginning,
    Over,
    Replaced,
    has_begun,
    master_status,
    why_not_made,
)
from dlrover_nb.core.backends.kubernetes.operator.operator_jobs import why_no_export
from dlrover_nb.core.basics.waits import tell
from dlrover_nb.core.client.link.call_ends import CallHandler, CallLink, expect, unpack_answer
from dlrover_nb.core.client.link.calls import (
    CALLS,
    ONCE,
    Answer,
    AskModel,
    AskSeries,
    AskSnapshot,
    AskSummary,
    Call,
    Done,
    NotBegun,
    SnapshotReply,
    Stop,
    right_of,
)
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.driver.calls.service import ACCESS_HEADER, CALL_PATH, call_url
from dlrover_nb.core.driver.past.finished_job import FinishedJob
from dlrover_nb.core.errors import AwayError, BackendError, InvalidValueError, NotFoundError
from dlrover_nb.core.manifests.kinds import CONFIG_MAP, EVENT, JOB, OWNERS, POD, SECRET
from dlrover_nb.core.manifests.objects import HTTP_PORT, OWNER_NOTE
from dlrover_nb.core.manifests.pod_parts import (
    JOB_LABEL,
    MASTER_ROLE,
    ROLE_LABEL,
    VIEW_NOTE,
    code_name,
    end_name,
    has_code,
    run_of,
    secret_name,
)
from dlrover_nb.core.rundir.bundle import CheckpointBundle, lay_out
from dlrover_nb.core.rundir.job_file import JobFile, write_job
from dlrover_nb.core.runtime.pod.staging import receive
from dlrover_nb.core.structs.decisions.call_rights import METHOD_OF, CallRight, access_token
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.views.snapshot import SeriesChunk
from dlrover_nb.core.structs.views.summary import JobSummary
from dlrover_nb.core.structs.wire.pod_contract import PodJob, keeps_checkpoints, run_name, storage_advice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.client.link.calls import Call
    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

CALL_LIMIT_S = 20.0
VIEW_BACK_S = 5.0  # as BACK_LIMIT_S, for views: they soon show an unreachable master, and retry
# An API server that is away is told within 5 s: a snapshot asks the pod that answered last, which may be gone
# with its machine, and then the API server, both within these limits. A master may take longer to answer.
KNOWN_LIMIT_S, FIND_LIMIT_S, AWAY_S = 2.0, 2.0, 2.5
VIEW_LIMIT_S = 10.0  # for one answer to a view: a master short of cores takes seconds
MODEL_LIMIT_S = 120.0  # for the largest model that is sent
BACK_LIMIT_S = 60.0  # for a master that restarts (a pod, its imports, its journal), or for the API server
BACK_EVERY_S = 0.5


MOST_URL_BYTES = 6 << 10  # common proxies take lines of 8 KiB, and the path before it is ours too
_EARLIER = {
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.NOT_IMPLEMENTED,
}
_BINARY = ("Content-Type", "application/octet-stream")


class MasterDoor:
    """The way to the master of one job; thread-safe.

    Parameters
    ----------
    access
        The job's own token; empty: this client may not read it.
    view
        The token that shows the job, which is all that a client without the other has.
    """

    def __init__(self, access: str, view: str = "") -> None:
        self._access, self._view = access, view
        self._is_earlier = False

    def send(self, api: Api, pod: str, call: Call, limit_s: float) -> bytes:
        """Send a call and return the encoded answer.

        Raises
        ------
        Forbidden
            When the user's role does not allow calls of this right.
        PodAnswered
            When the master refuses it.
        NotThere, Unreachable
            When nothing arrived there.
        """
        if not self._is_earlier:
            try:
                return self._send(api, pod, call, limit_s)
            except PodAnswered as error:
                if not self._access or error.status not in _EARLIER:
                    raise
        answer = self._post(api, pod, CALLS.pack(call), self._access, limit_s)
        self._is_earlier = True
        return answer

    def _send(self, api: Api, pod: str, call: Call, limit_s: float) -> bytes:
        right, packed = right_of(call), CALLS.pack(call)
        token = access_token(self._access, right) if self._access else self._view
        url, method = call_url(packed), METHOD_OF[right]
        if right is CallRight.VIEW and len(url) > MOST_URL_BYTES:
            method = METHOD_OF[CallRight.STEER]  # it has a body, and includes the right to view
        if method == "POST":
            return self._post(api, pod, packed, token, limit_s)
        if len(url) > MOST_URL_BYTES:
            raise InvalidValueError(
                f"the reason must fit into {MOST_URL_BYTES >> 11} KiB with the rest of the call; shorten it"
            )
        return api.proxy(pod, HTTP_PORT, url, None, {ACCESS_HEADER: token}, limit_s, method=method)

    @staticmethod
    def _post(api: Api, pod: str, packed: bytes, token: str, limit_s: float) -> bytes:
        headers = dict([(ACCESS_HEADER, token), _BINARY])
        return api.proxy(pod, HTTP_PORT, CALL_PATH, packed, headers, limit_s)


def make_run_folder(api: Api, job: PodJob, into: Path, ask: Callable[[], CheckpointBundle]) -> Path:
    """Return a folder below `into` with the files that a model is loaded from.

    Parameters
    ----------
    api
        The API server, at the job's namespace.
    job
        The job, from its Secret.
    ask
        Requests the newest checkpoint from the master.

    Raises
    ------
    NotFoundError
        When the job keeps no checkpoints, or has not saved one.
    CheckpointError, BackendError
        When it cannot be obtained.
    """
    spec = job.spec
    if not keeps_checkpoints(spec):
        raise NotFoundError(f"job {spec.name} has no checkpoint to load: {storage_advice(spec)}")
    if job.features is None:
        raise NotFoundError(f"job {spec.name} has no checkpoint yet; wait until it has saved one")
    folder, secret = into / run_name(spec.name, job.run), into / "secret"
    secret.mkdir()
    if has_code(job):
        for name, content in api.get(SECRET, code_name(spec.name))["data"].items():
            (secret / name).write_bytes(base64.b64decode(content))
    receive(spec, folder, url=job.code_url, mounted=secret)
    if not spec.checkpoint_url:
        lay_out(ask(), folder)
    write_job(folder, JobFile(spec, job.features, 0.0, "", job.public_key, ""))
    return folder


class KubernetesLink(CallLink):
    """Link to a job's master through the pod proxy; it is a `RemoteRunFolder` too.

    Parameters
    ----------
    api
        The API server, at the job's namespace.
    job
        The job as its Secret holds it, with its token; without one, what anyone may see of it.
    back_limit_s, limit_s
        Seconds to wait for a master that restarts, or for the API server, and for one answer.
    sleep, monotonic
        How to wait, and a clock that is never set back.
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
        super().__init__()
        self._api, self._job, self._name = api, job, job.spec.name
        self._door = MasterDoor(job.access)
        self._back_limit_s, self._limit_s = back_limit_s, limit_s
        self._sleep, self._monotonic = sleep, monotonic
        self._pod: str | None = None
        self._is_patient = True  # a view shows what the master does instead
        self._ended: CallHandler | None = None
        self._since_s = time.time()
        self.lasts = True  # False: the same client may get a stronger link soon

    @classmethod
    def of_viewer(cls, api: Api, job: PodJob, view: str, *, lasts: bool = True) -> KubernetesLink:
        """Return the link of a client that cannot read the Secret, with the token that shows the job."""
        link = cls(api, job)
        link._door, link.lasts = MasterDoor("", view), lasts
        return link

    def with_short_timeout(self) -> KubernetesLink:
        """Return a link for views: it reports within seconds that the master does not answer."""
        other = KubernetesLink(
            self._api.with_short_timeout(VIEW_BACK_S),
            self._job,
            back_limit_s=VIEW_BACK_S,
            limit_s=VIEW_LIMIT_S,
            sleep=self._sleep,
            monotonic=self._monotonic,
        )
        other._pod, other._reply, other._ended = self._pod, self._reply, self._ended
        other._since_s, other._is_patient, other._door = self._since_s, False, self._door
        return other

    def judge(self, documents: Iterable[Doc]) -> tuple[DryRunResult, ...]:
        """Return what the API server would do with documents."""
        return judge(self._api, documents)

    @property
    def namespace(self) -> str:
        """The job's namespace, to which its exports go."""
        return self._api.namespace

    def why_no_export(self, documents: Iterable[Doc]) -> str:
        """Return why this cluster cannot run documents; empty: nothing is known against them."""
        return why_no_export(self._api, documents)

    def send(self, call: Call) -> Answer:
        """Send a call; before the master has begun, answer locally where possible."""
        answer = self._ask(call, MODEL_LIMIT_S if isinstance(call, AskModel) else self._limit_s)
        return self._answer_without_master(call, answer) if isinstance(answer, NotBegun) else answer

    def ask_summary(self, pod: str, *, timeout_s: float) -> JobSummary | None:
        """Return the job's line in a list of jobs; None when the master in `pod` does not answer."""
        self._pod = pod
        answer = self._ask_once(AskSummary(), timeout_s)
        return answer if isinstance(answer, JobSummary) else None

    def fetch_model(self, into: Path) -> Path:
        """Write the files that a model is loaded from; see `make_run_folder`."""
        job = read_job(self._api, self._name)
        if job.run != self._job.run:
            raise NotFoundError(
                f"this run of job {self._name} is over and a newer one exists; attach {self._name}"
            )
        return make_run_folder(self._api, job, into, lambda: expect(CheckpointBundle, self.send(AskModel())))

    def _answer_without_master(self, call: Call, not_begun: NotBegun) -> Answer:
        match call:
            case AskSnapshot():
                return SnapshotReply(self._without_master(JobPhase.STARTING, not_begun.why), "")
            case AskSeries(cursor):
                return SeriesChunk(cursor, {}, {})
            case Stop(by, why):
                message = f"stopped by {by}{f': {why}' if why else ''}, before it began"
                last = self._without_master(JobPhase.STOPPED, message)
                kind = OWNERS[self._job.owner]
                halt(self._api, last, run=self._job.run, why_not=not_begun.why, kind=kind)
                return Done()
            case _:
                return not_begun

    def _ask(self, call: Call, limit_s: float) -> Answer:
        """Send a call; one that may be repeated is sent again when its answer was lost with the master.

        A master that continues the job has carried out nothing: each call is sent again while it gets on.
        """
        began_s, reason = self._monotonic(), ""
        end_s = began_s + (0.0 if isinstance(call, ONCE) else self._back_limit_s)
        while True:
            try:
                answer = self._ask_once(call, limit_s)
            except Unreachable as error:
                is_away = isinstance(call, AskSnapshot) and not error.status
                if self._monotonic() >= (min(end_s, began_s + AWAY_S) if is_away else end_s):
                    raise
            else:
                may_wait = isinstance(answer, NotBegun) and answer.is_resuming and self._is_patient
                if not (isinstance(answer, NotBegun) and (self._has_begun or may_wait)):
                    return answer
                if may_wait and answer.why != reason:
                    reason, end_s = answer.why, self._monotonic() + self._back_limit_s
                    tell(f"the master of job {self._name}, which {reason}")
                if self._monotonic() >= end_s:
                    raise AwayError(
                        f"the master of job {self._name} was lost and is restarting ({answer.why}); try again"
                    )
            self._sleep(BACK_EVERY_S)

    @property
    def _has_begun(self) -> bool:
        """Whether the master has answered once; the tag of a snapshot made here is empty."""
        return self._reply is not None and bool(self._reply.tag)

    def _ask_once(self, call: Call, limit_s: float) -> Answer:
        """Send to the pod that answered last, else locate the master; without a pod nothing was delivered."""
        if self._ended is not None:
            return self._ended.answer(call)
        if self._pod is not None and isinstance(call, AskSnapshot | AskSeries):
            with contextlib.suppress(NotThere, Unreachable):
                return self._ask_pod(self._pod, call, min(limit_s, KNOWN_LIMIT_S))
        elif self._pod is not None:
            with contextlib.suppress(NotThere):
                return self._ask_pod(self._pod, call, limit_s)
        pod = self._find(call)
        if not isinstance(pod, str):
            return pod
        self._pod = pod
        try:
            return self._ask_pod(pod, call, limit_s)
        except NotThere:
            return NotBegun("its master's pod is gone")

    def _ask_pod(self, pod: str, call: Call, limit_s: float) -> Answer:
        try:
            answer = self._door.send(self._api, pod, call, limit_s)
        except PodAnswered as error:
            raise BackendError(self._refusal(error)) from None
        except (NotThere, Unreachable):
            self._pod = None
            raise
        return unpack_answer(answer)

    def _find(self, call: Call) -> str | Answer:
        """Return the master's pod, or a local answer in its place."""
        selector = f"{JOB_LABEL}={self._name},{ROLE_LABEL}={MASTER_ROLE}"
        api = self._api.with_short_timeout(FIND_LIMIT_S) if isinstance(call, AskSnapshot) else self._api
        try:
            job = api.get(OWNERS[self._job.owner], self._name)
        except NotThere as error:
            raise NotFoundError(
                f"job {self._name} was deleted from namespace {self._api.namespace}; submit it again"
            ) from error
        pods = api.list(POD, selector=selector).items
        match master_status(job, pods, run=self._job.run):
            case Answering(pod):
                return pod
            case Beginning(why):
                return NotBegun(why if pods else self._why_not_made(job) or why)
            case Over(why):
                self._ended = CallHandler(self._finished(why))
                return self._ended.answer(call)
            case Replaced():
                raise NotFoundError(
                    f"this run of job {self._name} is over and a newer one exists; attach {self._name}"
                )

    def _why_not_made(self, job: Doc) -> str:
        fields = f"involvedObject.kind={self._job.owner},involvedObject.uid={job['metadata']['uid']}"
        try:
            return why_not_made(self._api.list(EVENT, fields=fields).items)
        except Forbidden:
            return ""

    def _finished(self, why: str) -> FinishedJob:
        """Return what this run left; what an earlier run left may not be deleted yet."""
        with contextlib.suppress(NotThere):
            end = self._api.get(CONFIG_MAP, end_name(self._name))
            if run_of(end) == self._job.run:
                return finished(end)
        if self._reply is not None and self._reply.snapshot.phase.is_final:
            return FinishedJob(self._reply.snapshot)
        message = f"its master failed: {why}" if why else "its master recorded no reason for its end"
        return FinishedJob(self._without_master(JobPhase.FAILED, message))

    def _without_master(self, phase: JobPhase, why: str) -> JobSnapshot:
        return without_master(self._job, phase, why, at_s=time.time(), started_at_s=self._since_s)

    def _refusal(self, error: PodAnswered) -> str:
        if error.status == 401:
            return (
                f"the master of job {self._name} does not accept this client's access token, which is of "
                f"another run; attach {self._name} again"
            )
        if error.status == 403:
            return f"the master of job {self._name} refused a call: {error.message}"
        return (
            f"the master of job {self._name} refused a call ({error.status}); use the release of dlrover-nb "
            "that the job was submitted with"
        )


class SecretGoneError(BackendError):
    """The Secret of a job does not exist: its submission was not completed, or a user deleted it."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the Secret {secret_name(name)} of job {name} is gone, without which no client can ask its "
            "master; the master of a job that trains restores it within two minutes, if its account may: "
            f"try again then, or remove the job with end {name} --delete --force"
        )


def read_job(api: Api, name: str) -> PodJob:
    """Return the job that its Secret holds.

    Raises
    ------
    SecretGoneError
        When there is none of that name.
    BackendError
        When its master has not written it yet.
    """
    try:
        encoded = (api.get(SECRET, secret_name(name)).get("data") or {}).get("job.json")
    except NotThere as error:
        raise SecretGoneError(name) from error
    if encoded is None:  # it was started from an exported file
        raise BackendError(
            f"job {name} has not started yet: its master is still creating its keys; try again in a moment"
        )
    return from_json(base64.b64decode(encoded), PodJob)


def link_of(api: Api, owner: Doc) -> KubernetesLink:
    """Return the link to the job of a Job or an ElasticJob, with as many rights as this user may read tokens.

    Until the master of a running job has restored its Secret, the job can be viewed.

    Raises
    ------
    NotFoundError
        When the name is now another run's.
    Forbidden
        When the user may not read the Secret, and the job has no token for viewers: an earlier release
        started it.
    """
    name, notes = owner["metadata"]["name"], owner["metadata"].get("annotations") or {}
    try:
        job = read_job(api, name)
    except (Forbidden, SecretGoneError) as error:
        is_restored = isinstance(error, SecretGoneError) and has_begun(owner)
        if VIEW_NOTE not in notes or not (is_restored or isinstance(error, Forbidden)):
            raise
        return KubernetesLink.of_viewer(api, as_seen(owner), notes[VIEW_NOTE], lasts=not is_restored)
    if job.run != run_of(owner):
        raise NotFoundError(f"job {name} was submitted again just now; attach {name} again")
    return KubernetesLink(api, job)


def as_seen(owner: Doc) -> PodJob:
    """Return a job as it is known without its Secret; its plan is what its master will tell."""
    head = owner["metadata"]
    spec = JobSpec(head["name"], owner=(head.get("annotations") or {}).get(OWNER_NOTE, ""))
    return PodJob(spec, None, run_of(owner), "", "", "", owner=owner.get("kind", JOB.name))
