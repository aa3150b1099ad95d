"""Kubernetes' quantities, as its documentation defines them."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from hypothesis import given
from support.cases import for_each
from support.jobs.exports import roles

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.quantities import MIB, amount, resources_of

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.resources import RolePlan


@for_each(
    ("text", "number"),
    [
        ("500m", "0.5"),
        (2, "2"),
        (0.5, "0.5"),
        ("1.", "1"),
        (".5", "0.5"),
        ("+1", "1"),
        ("100u", "0.0001"),
        ("7n", "0.000000007"),
        ("1k", "1000"),
        ("1Ki", "1024"),
        ("1M", "1000000"),
        ("3Gi", str(3 << 30)),
        ("2E", "2000000000000000000"),
        ("2Ei", str(2 << 60)),
        ("12e6", "12000000"),
        ("12E6", "12000000"),
        ("5E-3", "0.005"),
        (" 1 ", "1"),
    ],
)
def test_a_quantity_is_the_number_that_kubernetes_reads(text: object, number: str) -> None:
    assert amount(text, "cpu") == Decimal(number)


@for_each("text", ["", "m", "1 m", "1mi", "1KI", "0x1", "1e", "1e9999", "nan", "inf", None, True, []])
def test_what_is_no_quantity_is_refused(text: object, error_words) -> None:
    with error_words(InvalidValueError):
        amount(text, "cpu")


@given(roles)
def test_what_is_written_is_read_back_exactly(plan: RolePlan) -> None:
    written = resources_of(plan)
    assert float(amount(written["cpu"], "cpu")) == plan.cpu
    assert amount(written["memory"], "memory") == plan.memory_mib * MIB
