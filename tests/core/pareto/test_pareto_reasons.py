from __future__ import annotations

from dlrover_nb.core.pareto.reasons import PHRASES, change_words, reason
from dlrover_nb.core.perf.terms import TERMS
from dlrover_nb.core.structs.decisions import TermShare
from dlrover_nb.core.structs.resources import ResourcePlan, RolePlan

NOW = ResourcePlan(RolePlan(2, 0.5, 512), RolePlan(2, 0.5, 512))
FOUR_PS = ResourcePlan(NOW.worker, RolePlan(4, 0.5, 512))


def split(**seconds: float) -> tuple[TermShare, ...]:
    total = sum(seconds.values())
    return tuple(TermShare(t, seconds.get(t, 0.0), seconds.get(t, 0.0) / total) for t in TERMS)


def test_every_term_has_its_words():
    assert set(PHRASES) == {*TERMS, "host"}


def test_reason_names_the_term_that_shrinks_and_how_much():
    text = reason(
        (NOW, split(embeddings=0.46, gradients=0.54)),
        (FOUR_PS, split(embeddings=0.23, gradients=0.54)),
        identified=TERMS,
    )
    assert text == "46% of an iteration is waiting for embedding rows; 2 more PS halve it."


def test_share_that_the_data_does_not_tell_is_not_stated():
    text = reason(
        (NOW, split(embeddings=0.46, gradients=0.54)),
        (FOUR_PS, split(embeddings=0.23, gradients=0.54)),
        identified=(),
    )
    assert "46%" not in text
    assert "not measured yet" in text


def test_more_workers_work_side_by_side():
    more = ResourcePlan(RolePlan(3, 0.5, 512), NOW.ps)
    text = reason((NOW, split(sync=1.0)), (more, split(sync=1.2)), identified=TERMS)
    assert text == "1 more worker side by side, while an iteration takes 20% longer."


def test_change_in_words_names_all_that_changes():
    target = ResourcePlan(RolePlan(1, 1, 512), RolePlan(2, 0.5, 1024))
    assert change_words(NOW, target) == (
        "1 fewer worker, 1 instead of 0.5 cpu per worker, 1024 instead of 512 MiB per PS"
    )
    assert change_words(NOW, NOW) == "no change"
