"""Requests the summaries of all jobs of a Ray in parallel, as a view of many jobs does each second.

Sequential requests would take a round trip each, and one master that hangs would delay all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError

from dlrover_nb.core.client.link.call_ends import unpack_answer
from dlrover_nb.core.client.link.calls import CALLS, AskSummary
from dlrover_nb.core.errors import BackendError, NotFoundError
from dlrover_nb.core.structs.views.summary import JobSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LIMIT_S = 2.0  # a training master answers in milliseconds, a starting one takes seconds


class SummaryPoll:
    """Requests summaries from jobs' masters; actor handles are cached.

    Parameters
    ----------
    find
        Returns the actor of a job, or raises `NotFoundError`.
    """

    def __init__(self, find: Callable[[str], Any]) -> None:
        self._find = find
        self._actors: dict[str, Any] = {}

    def call(self, names: Iterable[str]) -> tuple[JobSummary, ...]:
        """Return the summaries of these jobs whose masters answer in time.

        Raises
        ------
        BackendError
            When Ray cannot be reached.
        """
        self._actors = {name: actor for name in names if (actor := self._way(name)) is not None}
        call = CALLS.pack(AskSummary())
        names_of = {actor.answer.remote(call): name for name, actor in self._actors.items()}
        if not names_of:
            return ()
        try:
            ready, _ = ray.wait(list(names_of), num_returns=len(names_of), timeout=LIMIT_S)
        except (RayError, ConnectionError) as error:
            raise BackendError(f"Ray cannot be reached ({error}); connect again") from error
        answers = (self._answer(reference, names_of[reference]) for reference in ready)
        return tuple(summary for summary in answers if summary is not None)

    def _way(self, name: str) -> Any:  # noqa: ANN401 - Ray's handle has no public type
        if name in self._actors:
            return self._actors[name]
        try:
            actor = self._find(name)
        except NotFoundError:  # gone since it was listed
            return None
        return actor if hasattr(actor, "answer") else None  # without: the master is of another release

    def _answer(self, reference: Any, name: str) -> JobSummary | None:  # noqa: ANN401 - as above
        try:
            answer = unpack_answer(ray.get(reference))
        except BackendError:  # of another release
            return None
        except RayError:  # gone, or restarting: its actor is looked up again
            del self._actors[name]
            return None
        return answer if isinstance(answer, JobSummary) else None
