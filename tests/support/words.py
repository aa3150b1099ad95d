"""Texts that users read, approved in `__snapshots__` beside the tests: one file of plain text for each module of tests.

The folder of a test and the ports of its servers, which no two runs share, stand there as ``FOLDER`` and ``PORT``.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from syrupy.assertion import SnapshotAssertion

LOCAL_PORT = re.compile(r"(?<=\b127\.0\.0\.1:)\d+")


class ErrorWords(Protocol):
    """Expects an error of a kind, whose text is the one that was approved."""

    def __call__(self, kind: type[Exception]) -> AbstractContextManager[pytest.ExceptionInfo[Exception]]:
        """Run a block that must end with the error."""


@pytest.fixture
def words(snapshot: SnapshotAssertion, tmp_path: Path) -> SnapshotAssertion:
    """Give what compares equal to the text that was approved for a test."""

    def same_everywhere(data: object, path: object) -> object:
        return (
            LOCAL_PORT.sub("PORT", data.replace(str(tmp_path), "FOLDER")) if isinstance(data, str) else data
        )

    return snapshot.with_defaults(matcher=same_everywhere)


@pytest.fixture
def error_words(words: SnapshotAssertion) -> ErrorWords:
    """Give the context in which an error with the approved text is raised."""

    @contextmanager
    def expected(kind: type[Exception]) -> Iterator[pytest.ExceptionInfo[Exception]]:
        with pytest.raises(kind) as error:
            yield error
        assert str(error.value) == words

    return expected
