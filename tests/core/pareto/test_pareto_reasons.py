from __future__ import annotations

import pytest

from dlrover_nb.core.pareto.reasons import PHRASES, change_words, reason
from dlrover_nb.core.perf.terms import TERMS
from dlrover_nb.core.structs.decisions.candidates import TermShare
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

NOW = ResourcePlan(RolePlan(2, 0.5, 512), RolePlan(2, 0.5, 512))
FOUR_PS = ResourcePlan(NOW.worker, RolePlan(4, 0.5, 512))


def split(**seconds: float) -> tuple[TermShare, ...]:
    total = sum(seconds.values())
    return tuple(TermShare(t, seconds.get(t, 0.0), seconds.get(t, 0.0) / total) for t in (*TERMS, "rest"))


def test_every_term_has_its_words():
    assert set(PHRASES) == {*TERMS, "host", "rest"}


def test_reason_names_the_term_that_shrinks_and_how_much(words):
    text = reason(
        (NOW, split(embeddings=0.46, gradients=0.54)),
        (FOUR_PS, split(embeddings=0.23, gradients=0.54)),
        identified=TERMS,
    )
    assert text == words


def test_share_that_the_data_does_not_tell_is_not_stated():
    text = reason(
        (NOW, split(embeddings=0.46, gradients=0.54)),
        (FOUR_PS, split(embeddings=0.23, gradients=0.54)),
        identified=(),
    )
    assert "46 %" not in text
    assert "cannot tell yet" in text


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        (
            -0.1,
            "rows; with 2 more PS that takes half as long; each step is another 10 % shorter, and the plan",
        ),
        (
            0.1,
            "that takes half as long; each step is 10 % longer than that, and the plan does not explain why.",
        ),
        (0.01, "that takes half as long."),
    ],
)
def test_what_the_change_cannot_have_done_is_said_to_be_unexplained(rest, words):
    text = reason(
        (NOW, split(embeddings=0.46, gradients=0.54)),
        (FOUR_PS, split(embeddings=0.23, gradients=0.54, rest=rest)),
        identified=TERMS,
    )
    assert words in text


def test_a_plan_that_is_faster_without_a_cause_gets_none_invented(words):
    text = reason((NOW, split(gradients=1.0)), (FOUR_PS, split(gradients=1.0, rest=-0.2)), identified=TERMS)
    assert text == words


def test_more_workers_run_in_parallel(words):
    more = ResourcePlan(RolePlan(3, 0.5, 512), NOW.ps)
    text = reason((NOW, split(sync=1.0)), (more, split(sync=1.2)), identified=TERMS, gain=0.25)
    assert text == words


def test_change_in_words_names_all_that_changes(words):
    target = ResourcePlan(RolePlan(1, 1, 512), RolePlan(2, 0.5, 1024))
    assert change_words(NOW, target) == words
    assert change_words(NOW, NOW) == "no change"
