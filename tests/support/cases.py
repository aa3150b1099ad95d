"""Cases of one test: a table that it goes through, where an item of pytest for each case costs more than the case.

Rejected: the fixture `subtests` of pytest, as it reports each case that passes too, so that a run has as many reports
as before; and a group of exceptions, as the plugin of Schemathesis shows one of those that look alike.
"""

from __future__ import annotations

import inspect
from functools import wraps
from traceback import format_exception_only
from typing import TYPE_CHECKING, TypeAlias

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Test: TypeAlias = "Callable[..., None]"
SHOWN = 120  # characters of a case's name
SKIPS = pytest.skip.Exception
ENDS = (Exception, pytest.fail.Exception, SKIPS)  # where some cases skip, they would be left out silently


def for_each(
    columns: str | Sequence[str], rows: Iterable[object], ids: Callable[[object], str] = repr
) -> Callable[[Test], Test]:
    """Try a test with every row of a table, and fail with the name and the error of each row that failed.

    It reads as `pytest.mark.parametrize` does, and stands above `given`. The rows share the fixtures of the test, which
    skips if every row does.
    """
    names = columns.replace(",", " ").split() if isinstance(columns, str) else list(columns)
    table = [_case(names, row) for row in rows]
    if not table:
        raise ValueError(f"expected rows of {', '.join(names)}, got none: the test could not fail")

    def over_all(test: Test) -> Test:
        @wraps(test)
        def test_of_all(*args: object, **fixtures: object) -> None:
            failures = {}
            for n, (name, case) in enumerate(table):
                try:
                    test(*args, **fixtures, **case)
                except ENDS as failure:
                    failures[f"{n} ({_shown(name, case, ids)})"] = failure
            if len(failures) == len(table) and all(isinstance(each, SKIPS) for each in failures.values()):
                raise next(iter(failures.values()))
            if failures:
                raise AssertionError(_message(failures, len(table))) from next(iter(failures.values()))

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in names]
        test_of_all.__signature__ = signature.replace(parameters=left)
        return test_of_all

    return over_all


def _case(names: list[str], row: object) -> tuple[str | None, dict[str, object]]:
    """Return the name that a row gives itself, and its values by column."""
    if not isinstance(row, type(pytest.param())):
        row = pytest.param(*([row] if len(names) == 1 else row))
    if row.marks:
        raise ValueError(f"{row} has marks: only a variant of its own can be skipped or selected")
    return row.id, dict(zip(names, row.values, strict=True))


def _shown(name: str | None, case: dict[str, object], ids: Callable[[object], str]) -> str:
    """Return the name of a case, made of its values where it has none."""
    text = name or ", ".join(f"{column}={ids(value)}" for column, value in case.items())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _message(failures: dict[str, BaseException], n_case: int) -> str:
    """Name all cases that failed in the first line, then each with its error."""
    errors = [f"{name}: {''.join(format_exception_only(failure))}" for name, failure in failures.items()]
    return "\n\n".join([f"{len(failures)} of {n_case} cases failed: {', '.join(failures)}", *errors])
