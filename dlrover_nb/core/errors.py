"""Errors that a person can act on: what was expected, what was found, what to do.

One base class, so that front ends (magics, command line, dashboard) can show any error of this package as one
line; any other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class DlroverError(Exception):
    """Base of all errors that are meant for the user; a note, where there is one, holds text to copy."""

    @property
    def text(self) -> str:
        """The text to show: the message, and below it the notes."""
        return "\n".join((str(self), *getattr(self, "__notes__", ())))


class InvalidValueError(DlroverError, ValueError):
    """A value is not valid: nothing was changed."""


class UnmanagedJobError(InvalidValueError):
    """The job is managed by other tools, and is only read here: nothing was changed."""


class NotFoundError(DlroverError, LookupError):
    """A job, proposal, file or column that was named does not exist."""


class StaleDecisionError(DlroverError):
    """A decision on a proposal that is no longer open, or on a plan that is no longer current.

    Parameters
    ----------
    message
        The request, and why it is no longer possible.
    story
        Lines of what happened to the proposal since it was shown, oldest first.
    """

    def __init__(self, message: str, story: Iterable[str] = ()) -> None:
        self.story = tuple(story)
        super().__init__("\n  ".join((message, *self.story)))


class NotAllowedError(DlroverError):
    """The person who asks may not do this; nothing was changed."""


class SecondPersonError(DlroverError):
    """A rule wants a second person for this: the request is kept until another person approves it."""


class CapacityError(DlroverError):
    """The request exceeds the cluster or the bounds of the job."""


class BackendError(DlroverError):
    """The cluster refused or failed a request, or cannot be reached."""


class AwayError(BackendError):
    """The cluster, or a job's master, gives no answer now; nothing is known to be wrong, and it may soon."""


class NotWrittenError(BackendError):
    """A command that must be written down could not be, and so was not carried out: nothing was changed."""


class JobFailedError(DlroverError):
    """A job ended without finishing its work."""


class AuditBrokenError(DlroverError):
    """Rows of the audit were changed, removed or moved; each line says what is wrong."""


class WireError(DlroverError):
    """A message that cannot be decoded, is of another version, or is too large."""


class CheckpointError(DlroverError):
    """A checkpoint is incomplete or does not match its checksum."""
