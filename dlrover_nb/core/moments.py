"""Moments as people write them in job files: dates with a time, and times of the day.

A moment is kept in seconds of the epoch, to the second, and written in UTC, so that it means the same on
every machine.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.errors import InvalidValueError

_TIME, _DAY = re.compile(r"\d{1,2}:\d{2}"), re.compile(r"\d{4}-\d{2}-\d{2}")
EXAMPLES = "2026-12-01T06:00Z, 2026-12-01 06:00 in this machine's time zone, or 18:00 for the next 18:00"


def read_moment(value: object, *, what: str = "the moment", now_s: float | None = None) -> float:
    """Return a moment in seconds of the epoch.

    Parameters
    ----------
    value
        Text, or what YAML makes of a date with a time. Without a zone it is of this machine's zone; a time
        alone is the next such time.
    what
        Its name, for errors.
    now_s
        The present moment; None: by this machine's clock.

    Raises
    ------
    InvalidValueError
        When it is no date with a time.
    """
    present_s = SystemClock().now_s() if now_s is None else now_s
    try:
        moment = _parsed(value, datetime.fromtimestamp(present_s, UTC).astimezone())
        if moment is not None:
            return float(round(moment.timestamp()))
    except (ValueError, OverflowError, OSError):
        pass  # as for what is no moment at all
    text = value.isoformat() if isinstance(value, date) else str(value)
    raise InvalidValueError(f"{what} must be a date with a time: {EXAMPLES}; got {shown(text)}")


def _parsed(value: object, now: datetime) -> datetime | None:
    text = value.strip() if isinstance(value, str) else ""
    if _TIME.fullmatch(text):
        return _next(text, now)
    moment = datetime.fromisoformat(text) if text and not _DAY.fullmatch(text) else value
    return moment.astimezone() if isinstance(moment, datetime) else None  # of this zone where none is named


def write_moment(at_s: float) -> str:
    """Return a moment as text in UTC, such as ``2026-12-01T06:00:00Z``."""
    return datetime.fromtimestamp(round(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _next(text: str, now: datetime) -> datetime:
    hour, minute = map(int, text.split(":"))
    today = datetime.combine(now.date(), time(hour, minute), now.tzinfo)
    return today if today > now else today + timedelta(days=1)
