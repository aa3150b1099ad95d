"""Errors that a person can act on: what was expected, what came, what to do.

One base class, so that the edges (magics, command line, dashboard) can show any error of ours as
one line and let everything else, which is a bug, keep its traceback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class DlroverError(Exception):
    """Base of all errors that are meant for the user; a note, where there is one, is something to use."""

    @property
    def told(self) -> str:
        """All there is to show: the one line, and below it the notes."""
        return "\n".join((str(self), *getattr(self, "__notes__", ())))


class InvalidValueError(DlroverError, ValueError):
    """A value is outside what it may be: wrong input, nothing was changed."""


class NotFoundError(DlroverError, LookupError):
    """A job, proposal, file or column that was named does not exist."""


class StaleDecisionError(DlroverError):
    """A decision on a proposal that is no longer open, or on a plan that is no longer current.

    Parameters
    ----------
    message
        What was asked and why it cannot be done any more.
    story
        Lines of what happened to the proposal since it was shown, oldest first.
    """

    def __init__(self, message: str, story: Iterable[str] = ()) -> None:
        self.story = tuple(story)
        super().__init__("\n  ".join((message, *self.story)))


class CapacityError(DlroverError):
    """The cluster or the job's bounds cannot hold what was asked."""


class BackendError(DlroverError):
    """The cluster did not do what it was told, or cannot be reached."""


class JobFailedError(DlroverError):
    """A job ended without finishing its work."""


class WireError(DlroverError):
    """A message that cannot be decoded, is of another version, or is too large."""


class CheckpointError(DlroverError):
    """A checkpoint is incomplete or does not match its checksum."""
