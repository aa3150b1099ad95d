"""Actions say themselves and refuse what cannot be carried out."""

from __future__ import annotations

import pytest
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.decisions.actions import (
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
)
from dlrover_nb.core.structs.plan.resources import Role

ACTIONS = [
    (
        AdjustBatches((("worker-0", 6), ("worker-1", 2))),
        True,
        "adjust batch sizes to worker-0 6 and worker-1 2",
    ),
    (
        AdjustBatches((("worker-0", 6), ("worker-1", 2)), (("worker-0", 3),)),
        True,
        "adjust batch sizes to worker-0 3 times 6 and worker-1 2",
    ),
    (BackupWorkers(0), True, "wait for all workers in each step"),
    (BackupWorkers(1), True, "go on without the 1 slowest worker of each step"),
    (KillRestart("worker-3", Role.WORKER), False, "restart worker-3"),
    (MoveBuckets("ps-1"), False, "move the parameters of ps-1 to the other parameter servers"),
    (AdjustRates((("worker-0", 0.5), ("worker-1", 1.0))), True, "multiply learning rates: worker-0 0.50"),
    (AdjustRates((("worker-0", 1.0),)), True, "set learning rates back"),
]


@for_each(("action", "is_global", "words"), ACTIONS)
def test_an_action_says_itself_and_whether_all_workers_take_it(action, is_global, words):
    assert action.is_global is is_global
    assert action.words == words


def test_the_total_counts_accumulated_batches():
    action = AdjustBatches((("worker-0", 6), ("worker-1", 2)), (("worker-0", 3),))
    assert action.samples == (("worker-0", 18), ("worker-1", 2))
    assert action.total == 20


def test_a_sentence_names_a_few_workers_only(words):
    action = AdjustBatches(tuple((f"worker-{i}", 1) for i in range(1_000)))
    assert action.words == words


@for_each(
    ("make", "words"),
    [
        (lambda: AdjustBatches(()), "at least one worker, got none"),
        (lambda: AdjustBatches((("worker-0", 0),)), "batch size of worker-0 must be >= 1, got 0"),
        (lambda: AdjustBatches((("a", 1), ("a", 2))), "each worker once, got a twice"),
        (lambda: AdjustBatches((("a", 1),), (("b", 2),)), "have a size, got b"),
        (lambda: BackupWorkers(-1), "n must be >= 0"),
        (lambda: AdjustRates((("a", 0.0),)), "factor of a must be > 0"),
    ],
)
def test_an_action_that_nobody_could_carry_out_is_refused(make, words):
    with pytest.raises(InvalidValueError, match=words):
        make()
