"""Errors are the same by kind and place, and are counted within a day."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.failures import (
    DAY_S,
    MOST_KINDS,
    CountedError,
    ProgramError,
    counted,
    normalized,
)


@for_each(
    ("one", "other"),
    [
        ("ValueError: row 3 is broken", "ValueError: row 4,711 is broken"),
        ("KeyError: 'user_x'", 'KeyError: "user_y"'),
        ("OSError: /tmp/tmpab12/x.bin is gone", "OSError: /tmp/tmpzz99/y.bin is gone"),
        ("<Net object at 0x7f12ab>, pid 12", "<Net object at 0x7e99ff>, pid 99"),
        ("shapes [512, 3] and [512]", "shapes [64, 3] and [64]"),
        ("loss is -1.5e-7", "loss is 3.25"),
        ("object a3f9c2d18e77", "object 0b12c3d4e5f6"),
    ],
)
def test_what_differs_each_time_makes_no_other_error(one: str, other: str) -> None:
    assert normalized(one) == normalized(other)


def test_kind_and_place_make_another_error() -> None:
    error = ProgramError("ValueError: row 3", "rows.py:12 in read")
    assert error.key == ProgramError("ValueError: row 9", "rows.py:12 in read").key
    assert error.key != ProgramError("KeyError: row 3", "rows.py:12 in read").key
    assert error.key != ProgramError("ValueError: row 3", "rows.py:13 in read").key
    assert error.key != ProgramError("ValueError: column 3", "rows.py:12 in read").key


@given(st.text())
def test_normalizing_twice_changes_nothing_more_than_once(text: str) -> None:
    once = normalized(text)
    assert len(once) <= 300
    assert not any("0" <= letter <= "9" for letter in once)


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0, 3 * DAY_S)), min_size=1, max_size=60))
def test_all_of_a_kind_within_a_day_are_counted_to_the_hour(told: list[tuple[int, float]]) -> None:
    errors: tuple[CountedError, ...] = ()
    told.sort(key=lambda each: each[1])
    for n, (kind, at_s) in enumerate(told):
        error = ProgramError(f"{'ABCDE'[kind]}Error: row {n}")
        errors = counted(errors, error, role=Role.WORKER, node=f"worker-{n}", at_s=at_s)
        last, same = errors[-1], [at for k, at in told[: n + 1] if k == kind]
        assert last.last == error
        assert last.nodes[-1] == f"worker-{n}"
        assert sum(at > at_s - DAY_S + 3600 for at in same) <= last.n
        assert last.n <= sum(at > at_s - DAY_S - 3600 for at in same)
        assert last.first_at_s in same
    assert from_json(to_json(errors[-1]), CountedError) == errors[-1]


def test_errors_of_workers_and_of_ps_are_counted_apart_and_not_more_kinds_than_may_be() -> None:
    errors: tuple[CountedError, ...] = ()
    for role in Role:
        for n in range(3):
            error = ProgramError("ValueError: x")
            errors = counted(errors, error, role=role, node=f"{role}-{n}", at_s=float(n))
    assert {each.role: each.n for each in errors} == {Role.WORKER: 3, Role.PS: 3}
    for n in range(2 * MOST_KINDS):
        error = ProgramError(f"{'x' * n}Error")
        errors = counted(errors, error, role=Role.PS, node="ps-9", at_s=10.0)
    assert len(errors) == MOST_KINDS
