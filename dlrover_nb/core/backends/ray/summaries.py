"""The masters of the jobs of a Ray, and their summaries, requested in parallel.

Masters are detached actors in one namespace, as are nodes, which are named JOB/NODE. A view of many jobs
requests their summaries each second. Sequential requests would take a round trip each, and one master that
hangs would delay all.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import ray
from ray._private import state
from ray.exceptions import RayError

from dlrover_nb.core.backends.ray.reach import NAMESPACE, ask_ray
from dlrover_nb.core.client.link.call_ends import unpack_answer
from dlrover_nb.core.client.link.calls import CALLS, AskSummary
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.errors import BackendError, NotFoundError
from dlrover_nb.core.structs.views.summary import JobSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

NAME_LIMIT_S = 10.0  # until the name of an ended master is free
LIMIT_S = 2.0  # a training master answers in milliseconds, a starting one takes seconds
LATE, AGAIN = f"not within {LIMIT_S:g} s; its master starts, or is busy", "its master is starting again"


def job_names() -> list[str]:
    """Return the names of all jobs with a master."""
    try:
        actors = ask_ray(lambda: ray.util.list_named_actors(all_namespaces=True))
    except (RayError, ConnectionError) as error:
        raise BackendError(f"Ray cannot be reached ({error}); connect again") from error
    return sorted(a["name"] for a in actors if a["namespace"] == NAMESPACE and "/" not in a["name"])


def master_of(name: str) -> Any:  # noqa: ANN401 - Ray's handle has no public type
    """Return the master of a job; raises `NotFoundError` when it is gone."""
    try:
        return ask_ray(lambda: ray.get_actor(name, namespace=NAMESPACE))
    except ValueError as error:
        raise NotFoundError(f"job {name} is gone") from error


def began_at_s(master: Any) -> float:  # noqa: ANN401 - as above
    """Return since when a master runs; where Ray does not know it yet, now."""
    row = state.actors(master._actor_id.hex())  # noqa: SLF001 - the one way to an actor's row in the table
    return (row or {}).get("StartTime", 0) / 1000 or SystemClock().now_s()


def await_name_free(name: str) -> None:
    """Wait until the name of an ended master may be used again."""
    end = time.monotonic() + NAME_LIMIT_S
    while name in job_names():
        if time.monotonic() > end:
            raise BackendError(
                f"the master of the ended job {name} could not be removed; choose another name"
            )
        time.sleep(0.02)


class SummaryPoll:
    """Requests summaries from jobs' masters; actor handles are cached.

    Parameters
    ----------
    find
        Returns the actor of a job, or raises `NotFoundError`.

    Attributes
    ----------
    silent
        Why masters gave no answer at the last call, by job: to wait for each of them would delay the list.
    """

    def __init__(self, find: Callable[[str], Any]) -> None:
        self._find = find
        self._actors: dict[str, Any] = {}
        self.silent: dict[str, str] = {}

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
        self.silent = {}
        if not names_of:
            return ()
        try:
            ready, late = ray.wait(list(names_of), num_returns=len(names_of), timeout=LIMIT_S)
        except (RayError, ConnectionError) as error:
            raise BackendError(f"Ray cannot be reached ({error}); connect again") from error
        self.silent = {names_of[reference]: LATE for reference in late}
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
            self.silent[name] = AGAIN
            return None
        return answer if isinstance(answer, JobSummary) else None
