"""Ray jobs of others: what a user submitted with Ray's own client, read through the REST API of its jobs.

Ray's dashboard serves it, at an address that Ray's head knows; ``RAY_API_SERVER_ADDRESS`` names another way
there, as for Ray's own commands. Requests are made here and not by ``JobSubmissionClient``: it takes any
address for that of the variable ``RAY_ADDRESS``, and so may ask another Ray than this process is connected
to. Nothing but GET is sent.

A Ray without a dashboard, such as our local one, has no such jobs. Drivers that connected without a
submission are left out: they are processes of a user's shell or notebook, and their output is not kept.
"""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

import msgspec
from ray.exceptions import RayError
from ray.experimental import internal_kv

from dlrover_nb.core.backends.ray.reach import ask_ray
from dlrover_nb.core.client.cluster import OfThisAccount
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.errors import BackendError, NotFoundError, WireError
from dlrover_nb.core.structs.cluster.unmanaged import UnmanagedJob

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")


KIND = "Ray job"
ADDRESS_VAR = "RAY_API_SERVER_ADDRESS"
JOBS_PATH = "/api/jobs/"
LIMIT_S = 5.0  # for an answer
FINAL = {"STOPPED", "SUCCEEDED", "FAILED"}
SUBMITTED = "SUBMISSION"  # the type of those with a submission; others are bare drivers


class RayDetails(msgspec.Struct):
    """A job, as the API tells it (`JobDetails` of Ray); times are in ms."""

    type: str
    status: str
    entrypoint: str
    submission_id: str | None = None
    message: str | None = None
    start_time: int | None = None
    end_time: int | None = None
    metadata: dict[str, str] | None = None
    driver_exit_code: int | None = None


class _Logs(msgspec.Struct):
    logs: str = ""


class SeesRayJobs(OfThisAccount):
    """A Ray cluster whose jobs of others are read; fits `core.client.cluster.ListsUnmanagedJobs`."""

    has_dashboard = True  # False: of our own head, which tells the address of one all the same

    def unmanaged_jobs(self) -> tuple[UnmanagedJob, ...]:
        """Return them, newest first."""
        url = self._url()
        return read_jobs(_get(url, JOBS_PATH), url) if url else ()

    def unmanaged_log(self, job: UnmanagedJob, n_line: int) -> tuple[str, ...]:
        """Return the last lines that one of them wrote."""
        body = _get(self._url(), f"{JOBS_PATH}{quote(job.name, safe='')}/logs")
        return tuple(_read(body, _Logs).logs.splitlines()[-n_line:])

    def _url(self) -> str:
        """Return where the API is served; empty: nowhere."""
        if given := os.environ.get(ADDRESS_VAR, ""):
            return given.rstrip("/")
        return dashboard_url() if self.has_dashboard else ""


def read_jobs(body: bytes, url: str) -> tuple[UnmanagedJob, ...]:
    """Return the submitted jobs of a list, newest first.

    Raises
    ------
    BackendError
        When it is no such list.
    """
    jobs = [_job(each, url) for each in _read(body, list[RayDetails]) if each.type == SUBMITTED]
    return tuple(sorted(jobs, key=lambda job: job.started_at_s or 0.0, reverse=True))


def _job(details: RayDetails, url: str) -> UnmanagedJob:
    name, code = details.submission_id or "", details.driver_exit_code
    facts = {"exit code": "" if code is None else str(code), **(details.metadata or {})}
    return UnmanagedJob(
        name=name,
        kind=KIND,
        state=details.status,
        is_final=details.status in FINAL,
        entrypoint=details.entrypoint,
        started_at_s=None if details.start_time is None else details.start_time / 1000,
        ended_at_s=None if details.end_time is None else details.end_time / 1000,
        message=details.message or "",
        facts=tuple((key, value) for key, value in facts.items() if value),
        ended_by=f"ray job stop {name} --address {url}",
    )


def dashboard_url() -> str:
    """Return the address of the dashboard as Ray's head tells it; empty: there is none."""
    try:
        value = ask_ray(lambda: internal_kv._internal_kv_get("dashboard", namespace="dashboard"))  # noqa: SLF001 - the one way to its address for a client of any kind
    except (RayError, ConnectionError) as error:
        raise BackendError(f"Ray cannot be reached ({error}); connect again") from error
    address = (value or b"").decode()
    return address if not address or "://" in address else f"http://{address}"


def _get(url: str, path: str) -> bytes:
    request = urllib.request.Request(url + path, headers=dict(_authorization()))  # noqa: S310 - http or https, by Ray
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:  # noqa: S310 - as above
            body: bytes = answer.read()
            return body
    except urllib.error.HTTPError as error:
        with error:
            words = error.read()[:200].decode(errors="replace")
        if error.code == http.client.NOT_FOUND and path != JOBS_PATH:
            raise NotFoundError(f"Ray keeps no log there: {words}") from error
        raise BackendError(f"Ray's jobs at {url} answered {error.code}: {words}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise BackendError(
            f"Ray's jobs at {url} cannot be read ({error}); {ADDRESS_VAR} may name another address"
        ) from error


def _authorization() -> Mapping[str, str]:
    """Return the token of a Ray that wants one, as a header; releases before 2.52 know none."""
    try:
        from ray._private.authentication import http_token_authentication  # noqa: PLC0415 - of new releases
    except ImportError:
        return {}
    headers: Mapping[str, str] = http_token_authentication.get_auth_headers_if_auth_enabled({})
    return headers


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return from_json(body, kind)
    except WireError as error:
        raise BackendError(f"Ray reported its jobs in another form than expected: {error}") from error
