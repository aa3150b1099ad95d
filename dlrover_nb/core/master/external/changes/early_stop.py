"""Early stopping of an external job: one whose rows the master accounts for, as all-reduce jobs of our own.

By the training loss, it reads what programs report. By a metric of held-out rows, programs are told after
which pass to score them (`JobState.evaluate_after`), and tell what it gave; training goes on meanwhile. What
is due follows from the rows that are done, so neither a master nor a program that begins anew has to know
what an earlier one did: the round starts over.

When the rule ends training, the ledger grants nothing more, as when a user finishes the job.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.master.own.rows.evaluation import early_stop_reason, metric_value
from dlrover_nb.core.structs.views.events import QualityMeasured
from dlrover_nb.core.structs.views.snapshot import EvaluationRound

if TYPE_CHECKING:
    from dlrover_nb.core.master.external.job.state import ExternalState
    from dlrover_nb.core.structs.training.samples import NodeSample
    from dlrover_nb.core.structs.views.snapshot import Evaluation


def due(state: ExternalState) -> int:
    """Return the pass after which held-out rows are to be scored now; 0: none."""
    rule, ledger, n_train = state.spec.early_stopping, state.account.ledger, _n_train(state)
    if rule is None or not rule.is_held_out or ledger is None or ledger.finished or state.quality.ended:
        return 0
    n_pass, rounds = ledger.counts().n_sample_done // n_train, state.quality.rounds
    n_seen = rounds[-1].n_pass if rounds else 0
    return n_pass if n_seen < n_pass < state.spec.n_epoch else 0


def add_round(state: ExternalState, n_pass: int, evaluation: Evaluation, at_s: float) -> None:
    """Add an evaluation, and end training if the rule says so; one that is not due changes nothing."""
    rule = state.spec.early_stopping
    if rule is None or not n_pass or n_pass > due(state) or n_pass in _passes(state):
        return
    new = EvaluationRound(n_pass, at_s, evaluation)
    rounds = (*state.quality.rounds, new)
    state.quality = replace(state.quality, rounds=rounds)
    state.emit(QualityMeasured(at_s, n_pass * _n_train(state), metric_value(new, rule)))
    if why := early_stop_reason(rounds, rule):
        end(state, why)
    state.tell(why or f"after pass {n_pass}: {evaluation}", at_s)


def add_loss(state: ExternalState, sample: NodeSample, at_s: float) -> None:
    """Add a report; once a window is full, end training if the rule says so."""
    rule, ledger = state.spec.early_stopping, state.account.ledger
    if rule is None or rule.is_held_out or ledger is None or ledger.finished or state.quality.ended:
        return
    n_train, losses = _n_train(state), state.quality.losses.with_report(sample)
    is_full = losses.is_full(rule, n_train, state.spec.n_epoch)
    losses = losses.closed(ledger.counts().n_sample_done) if is_full else losses
    state.quality = replace(state.quality, losses=losses)
    if not is_full:
        return
    state.emit(QualityMeasured(at_s, *losses.points[-1]))
    if why := losses.stop_reason(rule, n_train):
        end(state, why)
        state.tell(why, at_s)


def end(state: ExternalState, why: str) -> None:
    """Grant no more rows; shards at hand are completed."""
    assert state.account.ledger is not None
    state.account.ledger.close()
    state.quality = replace(state.quality, ended=why)


def restored(state: ExternalState) -> None:
    """Follow parameters and rows that went back: later passes are repeated, an end that was decided holds."""
    ledger = state.account.ledger
    if ledger is None:
        return
    n_pass = ledger.counts().n_sample_done // _n_train(state)
    rounds = tuple(each for each in state.quality.rounds if each.n_pass <= n_pass)
    state.quality = replace(state.quality, rounds=rounds)
    if state.quality.ended:
        ledger.close()


def _passes(state: ExternalState) -> set[int]:
    return {each.n_pass for each in state.quality.rounds}


def _n_train(state: ExternalState) -> int:
    """Return the rows of one pass."""
    return max(state.external.n_sample // state.spec.n_epoch, 1)
