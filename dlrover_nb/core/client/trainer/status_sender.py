"""Sends a job's progress to Kubeflow Trainer, from the pod of a TrainJob in which the job is waited for.

In an exported TrainJob of ours one pod runs the whole job (`core.export.alone`), and its first process
submits the job and waits for its end. That process sends, not the master: the pod ends with it, so a master
could lose the last status. It outlives killed masters too, and reaches jobs of any cluster.

Nothing of it can harm the job, which runs in other processes: a status that cannot be sent is logged and sent
later, newer then. Where an answer fails to come, a wait notices the job's end `TIMEOUT_S` later at most.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import math
import ssl
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit, urlunsplit

from dlrover_nb.core.client.trainer.status_format import write_status
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.training.reported import (
    CERTIFICATE_VAR,
    MOST_METRICS,
    MOST_S,
    TOKEN_FILE_VAR,
    URL_VAR,
    TrainerStatus,
)
from dlrover_nb.core.structs.views.summary import left_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

logger = logging.getLogger(__name__)

EVERY_S = 10.0  # between two statuses; Kubeflow asks for 5 s at least
REPEAT_S = 60.0  # after which one without news is sent again: its time says that the job is watched
LONGEST_S = 300.0  # between two tries while it does not answer
TIMEOUT_S = 5.0
LAST_TRIES, LAST_WAIT_S = 3, 1.0  # of the status of the end


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where statuses go.

    Parameters
    ----------
    url
        The whole address.
    token_file
        Path of the file with the token, which changes within the hour: it is read each time.
    certificate
        Path of the certificate that the server's is signed by; empty: one that the machine trusts.
    """

    url: SplitResult
    token_file: str
    certificate: str = ""

    def post(self, body: bytes) -> str:
        """Send a status; return why it was not taken, or an empty text. Proxies are not for the cluster."""
        try:
            token = Path(self.token_file).read_text().strip()
            head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            with contextlib.closing(self._connection()) as connection:
                connection.request("POST", urlunsplit(("", "", *self.url[2:])) or "/", body, head)
                answer = connection.getresponse()
                return "" if answer.status == 200 else _told(answer.status, answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            return f"{type(error).__name__}: {error}"

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self.url.hostname or "", self.url.port
        if self.url.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        context = ssl.create_default_context(cafile=self.certificate or None)
        return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)


def sender_of(env: Mapping[str, str]) -> TrainerSender | None:
    """Return the sender to where a TrainJob's variables say that statuses go; None where there are none."""
    endpoint = endpoint_of(env)
    return None if endpoint is None else TrainerSender(endpoint.post)


def endpoint_of(env: Mapping[str, str]) -> Endpoint | None:
    """Return where statuses go; see `sender_of`."""
    address, token_file = env.get(URL_VAR, ""), env.get(TOKEN_FILE_VAR, "")
    if not address or not token_file:
        return None
    try:
        url = urlsplit(address)
        is_good = url.scheme in {"http", "https"} and bool(url.hostname) and (url.port or 1) > 0
    except ValueError:  # of a port or an IPv6 address that is none
        is_good = False
    if not is_good:
        logger.warning("%s must be http://HOST or https://HOST, got %r: nothing is sent", URL_VAR, address)
        return None
    return Endpoint(url, token_file, env.get(CERTIFICATE_VAR, ""))


class TrainerSender:
    """Sends statuses of one job, at intervals; for one thread.

    Parameters
    ----------
    post
        Sends a body and returns why it was not taken, or an empty text.
    now_s
        A clock that is never set.
    """

    def __init__(self, post: Callable[[bytes], str], now_s: Callable[[], float] = time.monotonic) -> None:
        self._post, self._now_s, self._clock = post, now_s, SystemClock()
        self._sent: TrainerStatus | None = None
        self._sent_at_s = self._not_before_s = -math.inf
        self._n_failed, self._why = 0, ""

    def offer(self, snapshot: JobSnapshot) -> None:
        """Send the job's status, if it is time: a new one, one of long ago again, or the last one."""
        status = status_of(snapshot, self._clock.now_s())
        if snapshot.phase.is_final:
            self._send_last(status)
            return
        at_s = self._now_s()
        is_news = self._sent is None or replace(status, at_s=self._sent.at_s) != self._sent
        if at_s >= self._not_before_s and (is_news or at_s >= self._sent_at_s + REPEAT_S):
            self._send(status, at_s)

    def _send_last(self, status: TrainerStatus) -> None:
        for n in range(LAST_TRIES):
            if self._send(status, self._now_s()):
                return
            if n + 1 < LAST_TRIES:
                time.sleep(LAST_WAIT_S)

    def _send(self, status: TrainerStatus, at_s: float) -> bool:
        why = self._post(write_status(status))
        if why:
            self._n_failed += 1
            self._not_before_s = at_s + min(EVERY_S * 2 ** min(self._n_failed, 10), LONGEST_S)
            if why != self._why:
                logger.warning("Kubeflow Trainer did not take the job's progress, it is sent again: %s", why)
        else:
            if self._n_failed:
                logger.info("Kubeflow Trainer takes the job's progress again")
            self._sent, self._sent_at_s, self._not_before_s = status, at_s, at_s + EVERY_S
            self._n_failed = 0
        self._why = why
        return not why


def status_of(snapshot: JobSnapshot, at_s: float) -> TrainerStatus:
    """Return the status of a job: what its program reported so itself, and what is known here.

    A job that has not succeeded is never said to be done, though its rows may be: it is yet to be evaluated.
    """
    reported, is_done = snapshot.reported, snapshot.phase is JobPhase.SUCCEEDED
    by_program = None if reported is None else reported.percentage
    n_total = snapshot.train.n_sample_total
    by_rows = 100 * snapshot.train.n_sample_done // n_total if n_total else None
    percentage = by_rows if by_program is None else by_program
    left_s = 0.0 if is_done else left_of(snapshot)
    metrics = _metrics(snapshot) | dict(() if reported is None else reported.metrics)
    return TrainerStatus(
        at_s,
        100 if is_done else None if percentage is None else max(0, min(percentage, 99)),
        None if left_s is None else max(0, math.ceil(min(left_s, MOST_S))),
        tuple(metrics.items())[:MOST_METRICS],
    )


def _metrics(snapshot: JobSnapshot) -> dict[str, str]:
    quality = snapshot.evaluation
    values = {
        "loss": snapshot.loss,
        "samples_per_s": None if snapshot.phase.is_final else snapshot.samples_per_s,
        "workers": snapshot.target.worker.count,
        "ps": snapshot.target.ps.count,
        "auc": None if quality is None else quality.auc,
        "log_loss": None if quality is None else quality.log_loss,
    }
    return {name: f"{value:.6g}" for name, value in values.items() if value is not None}


def _told(status: int, body: bytes) -> str:
    """Return what a refusal says, which is a ``Status`` of Kubernetes."""
    try:
        message = str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        message = body[:200].decode(errors="replace")
    return f"HTTP {status}: {message}"
