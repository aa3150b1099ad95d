"""What an agent may do: read, explain, simulate, and propose; each tool is one method.

An agent reads text that others wrote: names, log lines, reasons. Some of it will one day say "now stop all
jobs". So no tool here can change a job, and that rests on more than good will: the jobs that tools hold have
a link that refuses every command (`ReadingLink`), and `propose` hands the command service a request, which a
person with the role for it must approve on the dashboard, knowing that an agent asked.

Rejected: tools that apply after a confirmation in the chat. The one who confirms there is whoever can write
into the chat.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import msgspec

from dlrover_nb.core.client.bare_snapshot import bare_snapshot
from dlrover_nb.core.client.past.history_queries import run_history, runs, scores
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.commands.service import CommandService
from dlrover_nb.core.errors import InvalidValueError, NotAllowedError
from dlrover_nb.core.history.audit.trail import AuditStore
from dlrover_nb.core.history.stores.request_store import RequestStore
from dlrover_nb.core.structs.decisions.commands import Asker, Entry
from dlrover_nb.core.why import question_of, reply_to

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.client.link.protocols import MasterLink
    from dlrover_nb.core.commands.requests import Decides
    from dlrover_nb.core.commands.second_person import Rules
    from dlrover_nb.core.structs.decisions.decisions import Decision
    from dlrover_nb.core.structs.decisions.people import Person
    from dlrover_nb.core.structs.decisions.query_answers import Explanation, LogLine, Weighed
    from dlrover_nb.core.structs.plan.bounds import Pins
    from dlrover_nb.core.structs.plan.offers import Allotment, Offer
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.quality import QualityCurve
    from dlrover_nb.core.structs.training.shards import UserChoice
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk

JsonObject = dict[str, Any]

N_STORY, N_PAST = 40, 50
MOST_WAITING = 20  # proposals of one person's agents
APPLIES_NOTHING = "an agent can propose, and never change a job; propose it, and let a person decide"


class ReadingLink:
    """A link to a job's master that passes on questions, and refuses every command."""

    def __init__(self, link: MasterLink) -> None:
        self._link = link

    def snapshot(self) -> JobSnapshot:
        """Return the newest snapshot of the job, without its secrets."""
        return bare_snapshot(self._link.snapshot())

    def series(self, cursor: int) -> SeriesChunk:
        """Return telemetry newer than `cursor`."""
        return self._link.series(cursor)

    def weigh(self, plans: tuple[ResourcePlan, ...]) -> tuple[Weighed, ...]:
        """Return for each plan its predicted effect."""
        return self._link.weigh(plans)

    def explain(self, proposal: str | None) -> Explanation:
        """Return why a proposal was made."""
        return self._link.explain(proposal)

    def offer(self) -> Offer:
        """Return the plans that the job could use."""
        return self._link.offer()

    def allot(self, allotment: Allotment) -> NoReturn:  # noqa: ARG002 - of a link
        """Refuse."""
        raise NotAllowedError(APPLIES_NOTHING)

    def learn_curves(self, curves: tuple[QualityCurve, ...]) -> NoReturn:  # noqa: ARG002 - of a link
        """Refuse."""
        raise NotAllowedError(APPLIES_NOTHING)

    def logs(self, node: str | None, n_line: int) -> tuple[LogLine, ...]:
        """Return the newest lines of a node, or of all."""
        return self._link.logs(node, n_line)

    def decide(self, decision: Decision) -> NoReturn:  # noqa: ARG002 - of a link
        """Refuse."""
        raise NotAllowedError(APPLIES_NOTHING)

    def choose(self, choice: UserChoice) -> NoReturn:  # noqa: ARG002 - of a link
        """Refuse."""
        raise NotAllowedError(APPLIES_NOTHING)

    def stop(self, by: str, why: str) -> NoReturn:  # noqa: ARG002 - of a link
        """Refuse."""
        raise NotAllowedError(APPLIES_NOTHING)


def only_read(handle: JobHandle) -> JobHandle:
    """Return a job that can be read, and not changed."""
    other = copy.copy(handle)
    vars(other).update(_link=ReadingLink(handle.link))
    return other


class AgentTools:
    """The tools, in the name of one person.

    Parameters
    ----------
    cluster
        Opens the cluster; it is asked when the first tool needs it.
    person
        In whose name the agent asks.
    now_s
        The time, for the audit.
    url
        Of the history's database, which the team's server must share to show proposals; None: the user's own.
    rules
        When a second person is needed.
    """

    def __init__(
        self,
        cluster: Callable[[], Cluster],
        person: Person,
        now_s: Callable[[], float],
        *,
        url: str | None,
        rules: Rules,
    ) -> None:
        self._open, self._url, self._now_s = cluster, url, now_s
        self._cluster: Cluster | None = None
        self._asker = Asker(person, Entry.AGENT)
        self._audit, self._requests = AuditStore(url), RequestStore(url)
        self._commands = CommandService(
            lambda: self._audit, now_s, requests=self._requests, rules=rules, is_required=True
        )

    def close(self) -> None:
        """Close the database."""
        self._audit.close()
        self._requests.close()

    def list_jobs(self) -> JsonObject:
        """Return the jobs of the cluster."""
        return {"jobs": plain(self._clusters().jobs())}

    def job_status(self, job: str) -> JsonObject:
        """Return the state of a job."""
        state: JsonObject = plain(self._job(job).snapshot())
        for name in ("front", "curves", "samples", "series"):
            state.pop(name)  # large, and for charts: `plans` has what can be chosen
        for line in state["memory"]:
            line.pop("fan")
        state["story"] = state["story"][-N_STORY:]
        return state

    def plans(self, job: str) -> JsonObject:
        """Return what is proposed for a job, and the plans that are worth their cost."""
        snapshot = self._job(job).snapshot()
        front = snapshot.front
        return {
            "version": snapshot.version,
            "now": plain(snapshot.target),
            "open_proposal": plain(snapshot.open_proposal),
            "open_mitigation": plain(snapshot.open_mitigation),
            "worth_their_cost": plain(front.candidates if front is not None else ()),
        }

    def stragglers(self, job: str) -> JsonObject:
        """Return who is slow in a job by its controller, and the actions against that."""
        snapshot = self._job(job).snapshot()
        return {
            "version": snapshot.version,
            "slow": plain(snapshot.stragglers),
            "open_mitigation": plain(snapshot.open_mitigation),
            "mitigations": plain(snapshot.mitigations),
        }

    def explain(self, job: str, proposal: str, question: str) -> JsonObject:
        """Return the answers to all questions about a plan with what they rest on, or to one alone."""
        chosen, handle = question_of(question) if question else None, self._job(job)
        explanation = handle.explain(proposal or None)
        reply: JsonObject = plain(reply_to(explanation, handle.snapshot(), chosen))
        if chosen is not None:
            return reply
        return {**plain(explanation), "answers": reply["answers"]}

    def what_if(self, job: str, sizes: Pins) -> JsonObject:
        """Return the predicted effect of another plan; sizes that are not given stay as they are."""
        handle = self._job(job)
        (weighed,) = handle.weigh(sizes.applied(handle.snapshot().target))
        effect: JsonObject = plain(weighed)
        return effect

    def logs(self, job: str, node: str, lines: int) -> JsonObject:
        """Return log lines."""
        return {"lines": plain(self._job(job).logs(node or None, n_line=lines))}

    def history(self, job: str) -> JsonObject:
        """Return the runs of a job, or of all, and what its newest run did."""
        past_runs = runs(self._url, job=job or None)
        answer: JsonObject = {"runs": plain(past_runs[:N_PAST])}
        if job and past_runs:
            newest = run_history(job, url=self._url)
            answer["newest"] = {
                "proposals": plain(newest.proposals[-N_PAST:]),
                "decisions": plain(newest.decisions[-N_PAST:]),
                "outcomes": plain(newest.outcomes[-N_PAST:]),
                "mitigations": plain(newest.mitigations[-N_PAST:]),
            }
        return answer

    def scoreboard(self) -> JsonObject:
        """Return how good predictions were."""
        accuracy: JsonObject = plain(scores(self._url))
        return accuracy

    def audit(self, job: str, rows: int) -> JsonObject:
        """Return who asked for what, newest first."""
        return {"rows": plain(self._audit.newest(rows, job=job or None))}

    def propose(self, job: str, request: Decides) -> JsonObject:
        """Leave a request that a person must approve; the job stays as it is."""
        self._check_asked(request.why)
        handle = self._job(job)
        now = handle.snapshot()
        command = request.command(handle.name, now)
        waiting = self._commands.propose(command, self._asker, handle.facts(command, now))
        return {
            "request": waiting.id,
            "asks_for": waiting.command.words,
            "expires_at_s": waiting.expires_at_s,
            "approve_at": f"/approve/{waiting.id}",
            "note": "nothing was changed; a person with the role for it must approve this",
        }

    def _check_asked(self, why: str) -> None:
        """Refuse a request without a reason, and more of them than people can read."""
        if not why.strip():
            raise InvalidValueError("a proposal must say why, got no reason; give one for who decides")
        waiting = self._requests.open(self._now_s())
        mine = [r for r in waiting if r.entry is Entry.AGENT and r.first == self._asker.person.name]
        if len(mine) >= MOST_WAITING:
            raise InvalidValueError(
                f"at most {MOST_WAITING} proposals of an agent may wait, got {len(mine)} that do; "
                "wait until people have answered some"
            )

    def _clusters(self) -> Cluster:
        if self._cluster is None:
            self._cluster = self._open()
        return self._cluster

    def _job(self, name: str) -> JobHandle:
        return only_read(self._clusters().job(name))


def plain(record: object) -> Any:  # noqa: ANN401 - JSON of any shape
    """Return a record as plain data; a number that is not finite is null."""
    return msgspec.json.decode(to_json(record))
