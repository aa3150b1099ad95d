"""Summaries of many jobs, requested from all masters at once: those that hang must not add up."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import DlroverError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.client.link.call_ends import CallLink
    from dlrover_nb.core.structs.views.summary import JobSummary

logger = logging.getLogger(__name__)

_AT_ONCE = 64  # masters called in parallel


def live_summaries(links: Mapping[str, CallLink]) -> tuple[JobSummary, ...]:
    """Return the summaries of the jobs whose masters answer, newest first; each link has its own limit."""
    if not links:
        return ()
    with ThreadPoolExecutor(min(_AT_ONCE, len(links))) as pool:
        answers = pool.map(lambda link: _summary(*link), links.items())
    summaries = (summary for summary in answers if summary is not None)
    return tuple(sorted(summaries, key=lambda s: s.started_at_s, reverse=True))


def _summary(job: str, link: CallLink) -> JobSummary | None:
    try:
        return link.summary()
    except DlroverError as error:
        logger.info("job %s does not answer: %s", job, error)
        return None
