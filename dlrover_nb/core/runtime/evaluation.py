"""Evaluations between passes, the rule of early stopping, and the final evaluation.

With `JobSpec.early_stopping` the held-out rows are scored after every pass but the last, which the final
evaluation follows anyway. A round grants evaluation shards before training shards, and training goes on
meanwhile. So its parameters advance a little while it scores, and a pass counts as over when as many rows
were trained as it has, though a few of them may belong to the next. Pausing for each round was rejected: it
would cost more than it gains.

When the rule ends training, the ledger grants nothing more; the job ends as after its last pass, with the
current parameters. Going back to those of the best round was rejected: with parameters on PS and hashed
embeddings that grow, it would require another complete copy.

Rounds of passes that a rollback undid are dropped and repeated; a round that the death of a master interrupts
starts over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job import JobPhase, Metric
from dlrover_nb.core.structs.snapshot import EvaluationRound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.state import JobState
    from dlrover_nb.core.sharding.ledger import ShardLedger
    from dlrover_nb.core.structs.job import EarlyStopping
    from dlrover_nb.core.structs.snapshot import Evaluation

    Floats = NDArray[np.float32]
    Evaluate = Callable[[Floats, Floats], Evaluation]

_NAMES = {Metric.AUC: "AUC", Metric.LOG_LOSS: "log loss"}


def early_stop_reason(rounds: Sequence[EvaluationRound], rule: EarlyStopping) -> str:
    """Return why training should end now; empty: it continues.

    Parameters
    ----------
    rounds
        All evaluations so far, oldest first.
    rule
        A round gains when it is better than the best before it by more than `min_gain`.
    """
    if not rounds:
        return ""
    best = rounds[0]
    for each in rounds[1:]:
        if _merit(each, rule) > _merit(best, rule) + rule.min_gain:
            best = each
    n_waited = len(rounds) - 1 - rounds.index(best)
    if n_waited < rule.patience:
        return ""
    value, least = (
        getattr(best.evaluation, rule.metric),
        f" of more than {rule.min_gain:g}" * bool(rule.min_gain),
    )
    return (
        f"stopped early after pass {rounds[-1].n_pass}: no gain{least} in {_NAMES[Metric(rule.metric)]} "
        f"since pass {best.n_pass} ({value:.4f})"
    )


def _merit(each: EvaluationRound, rule: EarlyStopping) -> float:
    return each.evaluation.auc if rule.metric == Metric.AUC else -each.evaluation.log_loss


def ledgers(state: JobState) -> tuple[ShardLedger, ...]:
    """Return the ledgers that grant the next shard, by priority."""
    if state.is_evaluating:
        return (state.evaluate,)
    return (state.evaluate, state.train) if state.round_of else (state.train,)


def advance(state: JobState, evaluate: Evaluate, at_s: float) -> None:
    """Start a due round, end one whose rows are all scored, and end training by the rule."""
    rule = state.spec.early_stopping
    if rule is None or not state.features.n_eval or state.is_evaluating or state.is_ended:
        return
    n_pass = state.train.counts().n_sample_done // state.features.n_train
    state.rounds = tuple(each for each in state.rounds if each.n_pass <= n_pass)
    if state.round_of > n_pass:  # a rollback undid its pass
        end_round(state)
    if state.round_of and state.evaluate.finished:
        _conclude(state, evaluate, rule, at_s)
    if not state.round_of and _is_due(state, n_pass):
        end_round(state)
        state.round_of = n_pass


def end_round(state: JobState) -> None:
    """Drop all scores: the next evaluation starts with all rows."""
    state.evaluate.restore()
    state.scored.clear()
    state.round_of = 0


def scored_rows(state: JobState) -> tuple[Floats, Floats] | None:
    """Return scores and labels of all evaluation rows, in their order; None when there are none."""
    if not state.scored:
        return None
    pairs = [state.scored[shard] for shard in sorted(state.scored)]
    scores, labels = (np.concatenate(column) for column in zip(*pairs, strict=True))
    return scores, labels


def end_job(state: JobState, evaluate: Evaluate, at_s: float) -> None:
    """End a job whose rows are all trained and evaluated."""
    what = state.stopped_early or "trained"
    state.end(JobPhase.SUCCEEDED, f"{what}; {_quality(state, evaluate)}", at_s)


def _quality(state: JobState, evaluate: Evaluate) -> str:
    rows = scored_rows(state)
    if rows is None:
        return "no rows were held out to evaluate on"
    try:
        state.evaluation = evaluate(*rows)
    except InvalidValueError as error:  # rows of one class; training has succeeded
        return f"no quality: {error}"
    return str(state.evaluation)


def _is_due(state: JobState, n_pass: int) -> bool:
    n_seen = state.rounds[-1].n_pass if state.rounds else 0
    return n_seen < n_pass < state.spec.n_epoch and not state.stopped_early and not state.train.finished


def _conclude(state: JobState, evaluate: Evaluate, rule: EarlyStopping, at_s: float) -> None:
    rows, n_pass = scored_rows(state), state.round_of
    end_round(state)
    try:
        result = evaluate(*rows) if rows is not None else None
    except InvalidValueError as error:  # rows of one class have no AUC
        state.note(f"pass {n_pass} was not evaluated: {error}", at_s)
        return
    if result is None:  # every evaluation shard was skipped
        return
    state.rounds = (*state.rounds, EvaluationRound(n_pass, at_s, result))
    state.stopped_early = early_stop_reason(state.rounds, rule)
    if state.stopped_early:
        state.train.close()
    state.note(state.stopped_early or f"after pass {n_pass}: {result}", at_s)
