"""What every `MasterLink` must do: subclass `LinkConformance`, or `FinishedLinkConformance`, once per link.

`LinkConformance` needs a job that trains in manual mode and runs until its last test, which stops it; the
fixture `link` is of class scope, because a job costs seconds to start. Ray, HTTP as pods use it, and local
processes carry the same calls to a real driver; a simulated job answers the same questions in its own
process. A finished job has no master: it meets `FinishedLinkConformance`, the subset that can be answered
from a last snapshot.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.errors import (
    CapacityError,
    DlroverError,
    InvalidValueError,
    NotFoundError,
    StaleDecisionError,
)
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import Quota
from dlrover_nb.core.structs.plan.offers import Allotment, NoOffer
from dlrover_nb.core.structs.training.shards import FinishChoice, ShardAction, ShardChoice
from support.waiting import until

if TYPE_CHECKING:
    from dlrover_nb.core.client.link.protocols import MasterLink

LIMIT_S = 300


def decision(verdict: Verdict, **fields: object) -> Decision:
    return Decision(verdict, "ada", 0.0, **fields)  # type: ignore[arg-type]


def decide_refused(link: MasterLink, refused: Decision, error: type[DlroverError]) -> None:
    """Assert that a decision is refused and leaves no trace."""
    before = link.snapshot()
    with pytest.raises(error):
        link.decide(refused)
    assert link.snapshot().decisions == before.decisions
    assert link.snapshot().target == before.target


class LinkConformance:
    """The contract of `core.client.link.protocols.MasterLink`."""

    name = "contract"

    @pytest.fixture(scope="class")
    @classmethod
    def link(cls) -> MasterLink:
        """Return the link to a job that trains."""
        raise NotImplementedError

    def test_the_snapshot_is_of_the_job_and_never_older_than_the_one_before(self, link: MasterLink) -> None:
        snapshots = [link.snapshot() for _ in range(5)]
        assert {snapshot.spec.name for snapshot in snapshots} == {self.name}
        at_s = [snapshot.at_s for snapshot in snapshots]
        assert at_s == sorted(at_s)

    def test_telemetry_is_returned_once_by_its_cursor(self, link: MasterLink) -> None:
        until(lambda: link.series(0).cursor > 0, what="telemetry")
        first = link.series(0)
        rest = link.series(first.cursor)
        assert rest.cursor >= first.cursor
        for columns in (rest.job, rest.node):
            for times in (columns[key] for key in columns if key == "at_s"):
                assert all(at_s >= first.job["at_s"][0] for at_s in times)
        assert link.series(rest.cursor).cursor >= rest.cursor

    def test_each_plan_is_weighed_in_its_order_and_none_changes_the_job(self, link: MasterLink) -> None:
        target = link.snapshot().target
        larger = replace(target, worker=replace(target.worker, count=target.worker.count + 1))
        assert [weighed.plan for weighed in link.weigh((larger, target))] == [larger, target]
        assert link.weigh(()) == ()
        assert link.snapshot().target == target

    def test_a_plan_beyond_the_machines_is_foretold_refused_and_is_refused(self, link: MasterLink) -> None:
        target = link.snapshot().target
        huge = replace(target, worker=replace(target.worker, cpu=10_000.0))
        (weighed,) = link.weigh((huge,))
        assert weighed.refusal
        decide_refused(link, decision(Verdict.SCALE, plan=huge), CapacityError)

    def test_a_proposal_that_is_not_there_is_neither_explained_nor_accepted(self, link: MasterLink) -> None:
        with pytest.raises(NotFoundError):
            link.explain("p999")
        decide_refused(link, decision(Verdict.ACCEPT, proposal="p999"), DlroverError)
        assert link.explain(None) is not None

    def test_a_decision_comes_back_with_its_id_and_is_in_the_snapshot(self, link: MasterLink) -> None:
        taken = link.decide(decision(Verdict.MODE, mode=Mode.SUGGEST, why="to see"))
        assert taken.id
        assert (taken.by, taken.why) == ("ada", "to see")
        until(lambda: link.snapshot().mode is Mode.SUGGEST, what="the mode")
        assert taken.id in {each.id for each in link.snapshot().decisions}

    def test_logs_of_an_unknown_node_and_no_lines_are_refused(self, link: MasterLink) -> None:
        with pytest.raises(NotFoundError):
            link.logs("nobody-7", 5)
        with pytest.raises(InvalidValueError):
            link.logs(None, 0)
        assert len(link.logs(None, 3)) <= 3

    def test_a_shard_that_is_not_in_quarantine_is_not_skipped(self, link: MasterLink) -> None:
        with pytest.raises(InvalidValueError, match="not in quarantine"):
            link.choose(ShardChoice(0, ShardAction.SKIP, "ada", ""))

    def test_where_a_user_decides_nothing_is_offered_and_quotas_of_the_newest_term_count(
        self, link: MasterLink
    ) -> None:
        link.decide(decision(Verdict.MODE, mode=Mode.MANUAL))
        answer = link.offer()
        assert isinstance(answer, NoOffer)
        assert "a user decides" in answer.why
        link.allot(Allotment(Quota(64.0), "", "two", 2))
        with pytest.raises(StaleDecisionError, match="two has taken over"):
            link.allot(Allotment(Quota(63.0), "", "one", 1))

    def test_stop_ends_the_job_and_a_second_stop_does_nothing(self, link: MasterLink) -> None:
        link.stop("ada", "enough")
        last = JobHandle(self.name, link).wait(timeout_s=LIMIT_S)
        assert last.phase is JobPhase.STOPPED
        link.stop("bob", "again")
        assert link.snapshot().phase is JobPhase.STOPPED
        with pytest.raises(StaleDecisionError):
            link.decide(decision(Verdict.SCALE, plan=last.target))


class FinishedLinkConformance:
    """The part of the contract that a job without a master meets."""

    @pytest.fixture
    def link(self) -> MasterLink:
        """Return the link to a job that has ended."""
        raise NotImplementedError

    def test_the_last_snapshot_stays(self, link: MasterLink) -> None:
        assert link.snapshot() == link.snapshot()
        assert link.snapshot().phase.is_final

    def test_a_stop_does_nothing_and_everything_else_is_refused(self, link: MasterLink) -> None:
        last = link.snapshot()
        link.stop("ada", "")
        for call in (
            lambda: link.decide(decision(Verdict.SCALE, plan=last.target)),
            lambda: link.weigh((last.target,)),
            lambda: link.explain(None),
            lambda: link.choose(ShardChoice(0, ShardAction.SKIP, "ada", "")),
            lambda: link.choose(FinishChoice("ada")),
        ):
            with pytest.raises(StaleDecisionError, match=f"job {last.spec.name} has {last.phase}"):
                call()
        assert link.snapshot() == last

    def test_a_cursor_stays_where_it_is(self, link: MasterLink) -> None:
        assert link.series(7).cursor == 7
