"""Validation of records: uniform wording for each kind of error."""

from __future__ import annotations

import math
import re

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.errors import InvalidValueError

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?")
_TAG = re.compile(r"[\w./:+-]{1,30}")
_MOST_TAGS = 10


def settings(what: str, items: tuple[str, ...]) -> None:
    """Refuse an item that is no ``NAME=VALUE``; its place is named, not its text, which may be a secret."""
    for number, item in enumerate(items, 1):
        if not item.partition("=")[1] or item.startswith("="):
            lack = "name" if "=" in item else "="
            raise InvalidValueError(f"{what} must hold NAME=VALUE, got item {number} without {lack}")


def at_least(what: str, value: float, least: float, *, hint: str = "") -> None:
    """Refuse a value below `least`, NaN or infinite."""
    if not (_is_finite(value) and value >= least):
        raise InvalidValueError(f"{what} must be >= {least:g}, got {value}{hint and '; ' + hint}")


def at_most(what: str, value: float, most: float) -> None:
    """Refuse a value above `most`."""
    if value > most:
        raise InvalidValueError(f"{what} must be <= {most:,}, got {value}; choose a smaller value")


def within(what: str, value: float, least: float, most: float) -> None:
    """Refuse a value outside [least, most], NaN or infinite."""
    at_least(what, value, least)
    at_most(what, value, most)


def above_zero(what: str, value: float, *, hint: str = "") -> None:
    """Refuse a value that is not a finite number above zero."""
    if not (math.isfinite(value) and value > 0):
        raise InvalidValueError(f"{what} must be > 0, got {value}{hint and '; ' + hint}")


def finite(what: str, value: float) -> None:
    """Refuse NaN and infinities."""
    if not math.isfinite(value):
        raise InvalidValueError(f"{what} must be a finite number, got {value}")


def fraction(what: str, value: float) -> None:
    """Refuse a value outside [0, 1)."""
    if not 0 <= value < 1:
        raise InvalidValueError(f"{what} must be in [0, 1), got {value}")


def seed(value: int) -> None:
    """Refuse a seed that does not fit into 64 bits, as random generators and records hold it."""
    if not -(1 << 63) <= value < 1 << 63:
        raise InvalidValueError(f"seed must be in [-2^63, 2^63), got {value}")


def job_name(value: str) -> None:
    """Refuse a name that no cluster would take (RFC 1035 label, with room for suffixes)."""
    if not _NAME.fullmatch(value):
        raise InvalidValueError(
            f"job name must be 1-52 lower-case letters, digits or '-', starting with a letter, "
            f"got {shown(value)}; for example quick-start"
        )


def tags(values: tuple[str, ...]) -> None:
    """Refuse tags that a list has no room for, or that an address would have to write otherwise."""
    for tag in values:
        if not _TAG.fullmatch(tag):
            raise InvalidValueError(
                f"a tag must be 1 to 30 letters, digits and . / : + - _, got {shown(tag)}; correct it"
            )
    if len(set(values)) < len(values) or len(values) > _MOST_TAGS:
        raise InvalidValueError(f"tags must be at most {_MOST_TAGS}, each once, got {', '.join(values)}")


def _is_finite(value: float) -> bool:
    return isinstance(value, int) or math.isfinite(value)  # a whole number may be too large for a float
