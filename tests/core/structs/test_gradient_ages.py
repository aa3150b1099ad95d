from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.codec import from_msgpack, to_msgpack
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.training.gradient_ages import (
    N_CLASS,
    AgeUnit,
    GradientAges,
    MeanAges,
    class_of,
    greatest_age,
    least_age,
    mean_ages,
    without_end_zeros,
)


@given(st.integers(0, 3071))
def test_each_age_lies_within_its_class(age):
    number = class_of(age)
    assert least_age(number) <= age <= greatest_age(number)


def test_classes_follow_one_another_and_are_exact_up_to_three():
    assert [class_of(age) for age in range(9)] == [0, 1, 2, 3, 4, 4, 5, 5, 6]
    for number in range(N_CLASS - 1):
        assert greatest_age(number) + 1 == least_age(number + 1)


def test_the_last_class_has_no_end():
    assert class_of(3071) == N_CLASS - 2
    assert class_of(3072) == class_of(10**12) == N_CLASS - 1


@given(st.lists(st.integers(0, 5), max_size=8))
def test_only_zeros_at_the_end_are_cut(counts):
    cut = without_end_zeros(counts)
    assert [*cut, *[0] * (len(counts) - len(cut))] == counts
    assert not cut or cut[-1]


def test_more_classes_than_there_are_and_negative_counts_are_refused():
    with pytest.raises(InvalidValueError, match="classes"):
        GradientAges("w0", (1,) * (N_CLASS + 1))
    with pytest.raises(InvalidValueError, match="gradients"):
        GradientAges("w0", (1, -1))


@given(counts=st.lists(st.integers(0, 99), min_size=1, max_size=4))
def test_means_of_small_ages_are_exact(counts):
    means, n = mean_ages({AgeUnit.UPDATES: counts}), sum(counts)
    if not n:
        assert means is None
        return
    assert means == MeanAges(n, pytest.approx(sum(age * each for age, each in enumerate(counts)) / n))


@given(age_ms=st.integers(0, 1 << 20))
def test_a_mean_is_within_the_class_of_its_ages(age_ms):
    unit = AgeUnit.MILLISECONDS
    number = class_of(age_ms, unit.n_class)
    means = mean_ages({AgeUnit.UPDATES: [1], unit: [0] * number + [3]})
    assert least_age(number) / 1000 <= means.seconds <= greatest_age(number, unit.n_class) / 1000
    assert means.row_updates is None


def test_ages_of_an_earlier_release_have_neither_times_nor_rows():
    assert from_msgpack(to_msgpack({"worker": "w0", "counts": [3, 1]}), GradientAges) == GradientAges(
        "w0", (3, 1)
    )
