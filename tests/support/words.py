"""Texts that users read, approved in `__snapshots__` beside the tests: one file of plain text for each module of tests.

What no two runs share stands there as a name: the folder of a test as ``FOLDER``, the ports of its servers as ``PORT``,
and the namespaces of a cluster that `support.kubernetes.kube` makes for it as ``NAMESPACE``.
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
NAMESPACE = re.compile(r"\bt-[0-9a-f]{8}\b")


class ErrorWords(Protocol):
    """Expects an error of a kind, whose text is the one that was approved."""

    def __call__(self, kind: type[Exception]) -> AbstractContextManager[pytest.ExceptionInfo[Exception]]:
        """Run a block that must end with the error."""


def lines_with(text: str, fact: str) -> str:
    """Return the lines of a text that have a fact, where the rest of it varies or is approved elsewhere."""
    return "\n".join(line for line in text.splitlines() if fact in line)


@pytest.fixture
def words(snapshot: SnapshotAssertion, tmp_path: Path) -> SnapshotAssertion:
    """Give what compares equal to the text that was approved for a test."""

    def same_everywhere(data: object, path: object) -> object:
        if not isinstance(data, str):
            return data
        return NAMESPACE.sub("NAMESPACE", LOCAL_PORT.sub("PORT", data.replace(str(tmp_path), "FOLDER")))

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
