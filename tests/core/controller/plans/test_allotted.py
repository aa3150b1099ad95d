"""The quota that a planner for all jobs gives one of them: it holds as long as it is renewed."""

from __future__ import annotations

import pytest

from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.errors import StaleDecisionError
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.bounds import Quota
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.views.events import JobSubmitted, QuotaChanged, Ticked

LASTS_S = 30.0
LIMITED = Quota(5.0, 10_000)
SILENT = "one does not answer: the job plans without a quota for now"


@pytest.fixture
def controller() -> Controller:
    return Controller(
        JobSubmitted(0.0, JobSpec("ads"), Capacity((NodeShape(8.0, 32_000),)), 9000, 100_000, 16)
    )


def allotment(at_s: float, quota: Quota = LIMITED, *, term: int = 3) -> QuotaChanged:
    return QuotaChanged(at_s, quota, "others need more", "one", term, LASTS_S)


def times_silent(controller: Controller) -> int:
    return sum(SILENT in line for line in controller.story())


def test_it_is_told_with_its_reason_and_forgotten_once_nobody_renews_it(
    controller: Controller, words
) -> None:
    controller.handle(allotment(1.0))
    assert "5 cores and 10000" in controller.story()[-1]
    assert controller.story()[-1] == words
    controller.handle(Ticked(0.9 + LASTS_S))
    assert not times_silent(controller)
    controller.handle(Ticked(1.0 + LASTS_S))
    controller.handle(Ticked(10.0 + LASTS_S))
    assert times_silent(controller) == 1


def test_it_holds_while_it_is_renewed_and_is_told_once(controller: Controller) -> None:
    for at_s in range(0, 300, 20):
        controller.handle(allotment(float(at_s)))
        controller.handle(Ticked(at_s + 19.0))
    assert not times_silent(controller)
    assert sum("others need more" in line for line in controller.story()) == 1


def test_one_of_an_earlier_term_is_refused_and_changes_nothing(controller: Controller, error_words) -> None:
    controller.handle(allotment(1.0))
    before = controller.story()
    with error_words(StaleDecisionError):
        controller.handle(allotment(2.0, Quota(9.0), term=2))
    assert controller.story() == before
