"""Errors as answers: one table from the kind of an error to a status, and its text in parts.

The texts of this product read ``EXPECTED, got GOT; WHAT TO DO``. They are taken apart here for programs, and
sent whole as `detail` for people, so that no error needs to be written twice.
"""

from __future__ import annotations

from http import HTTPStatus

from dlrover_nb.core import errors
from dlrover_nb.dashboard.api_v1.answers import Problem

TYPE = "application/problem+json"
# The first that fits: kinds before the kinds that they are of.
STATUSES: tuple[tuple[type[errors.DlroverError], HTTPStatus], ...] = (
    (errors.NotAllowedError, HTTPStatus.FORBIDDEN),
    (errors.NotFoundError, HTTPStatus.NOT_FOUND),
    (errors.StaleDecisionError, HTTPStatus.CONFLICT),
    (errors.SecondPersonError, HTTPStatus.ACCEPTED),
    (errors.InvalidValueError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (errors.CapacityError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (errors.AwayError, HTTPStatus.SERVICE_UNAVAILABLE),
    (errors.NotWrittenError, HTTPStatus.SERVICE_UNAVAILABLE),
    (errors.JobFailedError, HTTPStatus.CONFLICT),
    (errors.DlroverError, HTTPStatus.BAD_GATEWAY),  # the cluster failed, or answered what is no answer
)


def status_of(error: errors.DlroverError) -> HTTPStatus:
    """Return the status that tells the kind of an error."""
    return next(status for kind, status in STATUSES if isinstance(error, kind))


def problem_of(error: errors.DlroverError, status: HTTPStatus | None = None) -> Problem:
    """Return an error as a problem; `status` where it is not that of its kind."""
    text, *rest = error.text.splitlines() or [""]
    story = error.story if isinstance(error, errors.StaleDecisionError) else tuple(rest)
    return problem(status or status_of(error), text, story=story)


def problem(status: HTTPStatus, text: str, *, story: tuple[str, ...] = ()) -> Problem:
    """Return a problem of a status by its text."""
    fact, _, advice = text.partition("; ")
    expected, is_split, got = fact.partition(", got ")
    return Problem(
        "about:blank",
        status.phrase,
        int(status),
        text,
        expected=expected if is_split else "",
        got=got,
        what_to_do=advice,
        story=story,
    )
