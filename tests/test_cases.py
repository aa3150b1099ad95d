"""A test of many cases tries them all, and its failure names each case that failed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each


def test_every_case_is_tried_and_each_that_fails_is_named_with_its_error():
    tried = []

    @for_each("n", range(4))
    def is_even(n, remainder):
        tried.append(n)
        assert n % 2 == remainder, "odd"

    with pytest.raises(AssertionError, match="2 of 4 cases failed: 1 \\(n=1\\), 3 \\(n=3\\)") as caught:
        is_even(remainder=0)
    assert tried == [0, 1, 2, 3]
    assert str(caught.value).count("AssertionError: odd") == 2
    assert "odd" in str(caught.value.__cause__)


@pytest.mark.parametrize("end", [pytest.skip, pytest.fail])
def test_a_case_that_skips_or_fails_by_a_call_fails_the_test(end):
    @for_each("reason", ["", "no such machine"])
    def ends(reason):
        if reason:
            end(reason)

    with pytest.raises(AssertionError, match="1 of 2 cases failed: 1 \\(reason='no such machine'\\)"):
        ends()


def test_a_test_whose_cases_all_skip_is_skipped():
    @for_each("tool", ["a", "b"])
    def skips(tool):
        pytest.skip(f"needs {tool}")

    with pytest.raises(pytest.skip.Exception, match="needs a"):
        skips()


def test_a_case_has_the_name_that_its_row_gives():
    @for_each("a, b", [(0, 0), pytest.param(1, 0, id="unequal")])
    def are_equal(a, b):
        assert a == b

    with pytest.raises(AssertionError, match="1 of 2 cases failed: 1 \\(unequal\\)"):
        are_equal()


def test_a_table_without_rows_is_refused():
    with pytest.raises(ValueError, match="expected rows of a, b, got none"):
        for_each(("a", "b"), [])


def test_a_row_with_marks_is_refused():
    with pytest.raises(ValueError, match="has marks: only a variant"):
        for_each("a", [pytest.param(1, marks=pytest.mark.skip)])


@pytest.fixture(scope="module")
def signs():
    numbers = set()
    yield numbers
    assert numbers == {-1, 1}


@for_each("sign", [-1, 1])
@given(size=st.integers(0, 5))
def test_a_law_is_tried_in_each_case_with_the_fixtures_of_the_test(signs, sign, size):
    signs.add(sign)
    assert sign * size * sign == size
