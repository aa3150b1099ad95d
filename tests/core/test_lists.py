"""Lists in sentences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.basics.lists import and_list

NAMES = st.lists(st.from_regex(r"[a-z]+-\d", fullmatch=True), max_size=9)


@pytest.mark.parametrize(
    ("names", "words"),
    [([], ""), (["a"], "a"), (["a", "b"], "a and b"), ([1, 2, 3], "1, 2 and 3")],
)
def test_the_last_name_comes_after_an_and(names, words):
    assert and_list(names) == words


@given(NAMES, st.integers(1, 5))
def test_no_name_is_lost_and_those_beyond_the_most_are_counted(names, most):
    words = and_list(names, most=most).replace(" and ", ", ").split(", ")
    assert words[:most] == (names or [""])[:most]
    assert words[most:] == ([f"{len(names) - most} more"] if len(names) > most else [])
