"""A moment in the past as people write it: an age such as ``24h``, or a date."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.errors import InvalidValueError

_AGE = re.compile(r"(\d{1,6}(?:\.\d+)?)\s*([mhdw])")
_UNIT_S = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def parse_since(text: str, now_s: float) -> float:
    """Return the moment that a text means, in seconds since 1970.

    Parameters
    ----------
    text
        An age (``30m``, ``24h``, ``7d``, ``2w``), or a date with or without a time; UTC where it names no
        zone.

    Raises
    ------
    InvalidValueError
        When it is neither.
    """
    if age := _AGE.fullmatch(text.strip()):
        return now_s - float(age[1]) * _UNIT_S[age[2]]
    try:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidValueError(
            f"expected an age such as 24h or 7d, or a date such as 2026-05-01, got {shown(text)}"
        ) from error
