"""Evaluations between passes, the rule of early stopping, and the final evaluation.

With `JobSpec.early_stopping` on a metric of held-out rows these are scored after every pass but the last,
which the final evaluation follows anyway (the training loss: `training_loss`). A round grants evaluation
shards before training shards, and training goes on meanwhile. So its parameters advance a little while it
scores, and a pass counts as over when as many rows were trained as it has, though a few of them may belong to
the next. Pausing for each round was rejected: it would cost more than it gains.

When the rule ends training, the ledger grants nothing more; the job ends as after its last pass, with the
current parameters. Going back to those of the best round was rejected: with parameters on PS and hashed
embeddings that grow, it would require another complete copy.

Rounds of passes that a rollback undid are dropped and repeated; a round that the death of a master interrupts
starts over.

The master adds up scores as their shards come (`models.score_sums`), so that no evaluation keeps its loop
busy, however many rows were held out.

A score that is not finite has no rank, so its row is left out and named. That is for single broken rows:
where it is more than one in a hundred the model itself is broken, and the job fails instead of being
"trained".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.deadline.stop_rule import stop_reason
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.master.own.rows import skipped_batches
from dlrover_nb.core.master.own.state.state_records import WithoutScore
from dlrover_nb.core.master.shared.orders import Emit
from dlrover_nb.core.structs.job.early_stopping import Metric
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.views.events import QualityMeasured
from dlrover_nb.core.structs.views.snapshot import EvaluationRound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.master.own.state.state import JobState
    from dlrover_nb.core.models.score_sums import ScoreSums
    from dlrover_nb.core.sharding.ledger import ShardLedger
    from dlrover_nb.core.structs.job.early_stopping import EarlyStopping
    from dlrover_nb.core.structs.views.snapshot import Evaluation

    Floats = NDArray[np.float32]
    Evaluate = Callable[[ScoreSums], Evaluation]

MOST_WITHOUT_SCORE = 0.01  # of the held-out rows


@dataclass(frozen=True, slots=True)
class _Quality:
    """What an evaluation gave: nothing where `text` says why."""

    text: str
    evaluation: Evaluation | None = None
    is_broken: bool = False  # the model is


def early_stop_reason(rounds: Sequence[EvaluationRound], rule: EarlyStopping) -> str:
    """Return why training should end now; empty: it continues.

    Parameters
    ----------
    rounds
        All evaluations so far, oldest first.
    rule
        Of held-out rows; see `deadline.stop_rule`.
    """
    return stop_reason([each.n_pass for each in rounds], [metric_value(each, rule) for each in rounds], rule)


def metric_value(each: EvaluationRound, rule: EarlyStopping) -> float:
    """Return what the rule reads of an evaluation."""
    return each.evaluation.auc if rule.metric == Metric.AUC else each.evaluation.log_loss


def ledgers(state: JobState) -> tuple[ShardLedger, ...]:
    """Return the ledgers that grant the next shard, by priority."""
    if state.is_evaluating:
        return (state.evaluate,)
    return (state.evaluate, state.train) if state.round_of else (state.train,)


def advance(state: JobState, evaluate: Evaluate, at_s: float) -> None:
    """Start a due round, end one whose rows are all scored, and end training by the rule."""
    rule = state.spec.early_stopping
    if rule is None or not rule.is_held_out or not state.features.n_eval:
        return
    if state.is_evaluating or state.is_ended:
        return
    n_pass = state.train.counts().n_sample_done // state.features.n_train
    state.rounds = tuple(each for each in state.rounds if each.n_pass <= n_pass)
    state.round_tried = min(state.round_tried, n_pass)
    if state.round_of > n_pass:  # a rollback undid its pass
        end_round(state)
    if state.round_of and state.evaluate.finished:
        _conclude(state, evaluate, rule, at_s)
    if not state.round_of and _is_due(state, n_pass):
        end_round(state)
        state.round_of = n_pass


def end_round(state: JobState) -> None:
    """Drop all scores: the next evaluation starts with all rows."""
    drop_scores(state)
    state.round_of = 0


def drop_scores(state: JobState) -> None:
    """Drop all scores, and grant their shards again."""
    state.evaluate.restore()
    state.scores.clear()
    state.without_score = WithoutScore()


def add_scores(state: JobState, shard: int, scores: Floats, labels: Floats) -> None:
    """Add the scores of a shard that is complete now."""
    has_score = np.isfinite(scores)
    if not has_score.all():
        first = state.evaluate.split.rows(shard)[0]
        state.without_score.add((first + np.flatnonzero(~has_score)).tolist())
    state.scores.add(shard, scores[has_score], labels[has_score])


def end_job(state: JobState, evaluate: Evaluate, at_s: float) -> None:
    """End a job whose rows are all trained and evaluated; with a broken model it has failed."""
    quality = _quality(state, evaluate)
    state.evaluation = quality.evaluation
    what = "the model cannot be used" if quality.is_broken else state.stopped_early or "trained"
    parts = (what, quality.text, skipped_batches.told(state), state.not_saved)
    phase = JobPhase.FAILED if quality.is_broken else JobPhase.SUCCEEDED
    state.end(phase, "; ".join(filter(None, parts)), at_s)


def _quality(state: JobState, evaluate: Evaluate) -> _Quality:
    n_without = state.without_score.n_row
    n_row = state.scores.n_row + n_without
    if not n_row:
        return _Quality("there are no held-out rows to evaluate on")
    without = f"{n_without} of {n_row:,} held-out rows have no finite score: {state.without_score}"
    without = without if n_without else ""
    if n_without > MOST_WITHOUT_SCORE * n_row:
        return _Quality(without, is_broken=True)
    try:
        result = evaluate(state.scores)
    except InvalidValueError as error:  # rows of one class; training has succeeded
        return _Quality(f"no quality: {error}")
    if not (math.isfinite(result.auc) and math.isfinite(result.log_loss)):
        return _Quality(f"its evaluation is not finite: {result}", is_broken=True)
    return _Quality("; ".join(filter(None, (str(result), without))), result)


def _is_due(state: JobState, n_pass: int) -> bool:
    n_seen = state.rounds[-1].n_pass if state.rounds else 0
    n_seen = max(n_seen, state.round_tried)  # one without a result is not repeated for ever
    return n_seen < n_pass < state.spec.n_epoch and not state.stopped_early and not state.train.finished


def _conclude(state: JobState, evaluate: Evaluate, rule: EarlyStopping, at_s: float) -> None:
    n_row, n_pass = state.scores.n_row + state.without_score.n_row, state.round_of
    quality = _quality(state, evaluate) if n_row else None
    end_round(state)
    state.round_tried = n_pass
    if quality is None:  # every evaluation shard was skipped
        return
    if quality.evaluation is None:
        state.note(f"pass {n_pass} was not evaluated: {quality.text}", at_s)
        return
    new = EvaluationRound(n_pass, at_s, quality.evaluation)
    state.rounds = (*state.rounds, new)
    measured = QualityMeasured(at_s, n_pass * state.features.n_train, metric_value(new, rule))
    state.orders.append(Emit(measured))
    state.stopped_early = early_stop_reason(state.rounds, rule)
    if state.stopped_early:
        state.train.close()
    state.note(state.stopped_early or f"after pass {n_pass}: {quality.text}", at_s)
