"""What a user finds in the history of a job: the same as the job itself told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.client.past import history_queries
from dlrover_nb.core.structs.decisions.actions import ActionChoice, KillRestart
from dlrover_nb.core.structs.decisions.decisions import Decision, ProposalStatus, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.driver.driver_world import DriverWorld


def test_a_job_leaves_proposals_decisions_outcomes_and_series(
    play: Callable[..., DriverWorld], words
) -> None:
    job = play(n_epoch=200, mode=Mode.SUGGEST)
    now = job.until(lambda now: now.open_proposal)
    proposal = now.open_proposal
    assert proposal is not None
    job.driver.decide(Decision(Verdict.ACCEPT, "ada", job.at_s, proposal=proposal.id, why="to learn"))
    running = history_queries.run_history(
        "real", url=job.history
    )  # another connection, while the master writes
    assert [decision.why for decision in running.decisions] == ["to learn"]
    assert not running.run.phase.is_final
    job.until(lambda now: now.outcomes)
    job.driver.stop("ada", "seen enough")
    end = job.until_end()

    kept = history_queries.run_history("real", url=job.history)
    assert (kept.run.phase, kept.run.message) == (JobPhase.STOPPED, words)
    assert kept.run.spec == end.spec
    assert kept.run.ended_at_s is not None
    assert kept.proposals == end.proposals
    assert kept.proposals[0].status is ProposalStatus.APPLIED
    assert kept.decisions == end.decisions
    assert kept.outcomes == end.outcomes
    assert kept.outcomes[0].decision == kept.decisions[0].id
    assert kept.fits[-1].n_plan == (end.fit.n_plan if end.fit else 0)
    assert sum(row.samples_per_s * row.span_s for row in kept.series) > 0
    assert kept.run in history_queries.runs(job.history, job="real")
    assert history_queries.scores(url=job.history).total.n_outcome == len(end.outcomes)


def test_a_job_leaves_its_actions_against_stragglers(play: Callable[..., DriverWorld]) -> None:
    job = play(n_epoch=200)
    job.until(lambda now: now.running and now.train.n_sample_done)
    restart = ActionChoice.of(KillRestart("worker-0", Role.WORKER))
    job.driver.decide(Decision(Verdict.MITIGATE, "ada", job.at_s, action=restart, why="a noisy neighbour"))
    (begun,) = history_queries.run_history("real", url=job.history).mitigations
    assert (begun.action, begun.why, begun.decision) == (restart, "a noisy neighbour", "d1")
    job.until(lambda now: now.mitigations and now.mitigations[0].status is ProposalStatus.APPLIED)
    job.driver.stop("ada", "seen enough")
    end = job.until_end()
    kept = history_queries.run_history("real", url=job.history)
    assert kept.run.phase is JobPhase.STOPPED
    assert kept.mitigations == end.mitigations
    assert [each.status for each in kept.mitigations] == [ProposalStatus.APPLIED]
