"""Formatting of numbers: one form for text, HTML, charts and live views."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dlrover_nb.core.basics import percents as shares_in_words
from dlrover_nb.core.structs.plan.prices import ASSUMED

if TYPE_CHECKING:
    from collections.abc import Sequence

MISSING = "-"  # a value that is not known
PRICE_UNKNOWN = "price unknown"
BEFORE = "before the start"
NO_BREAK = "\u00a0"


def known(value: float | None) -> bool:
    """Whether there is a finite number to show."""
    return value is not None and math.isfinite(value)


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with `digits` significant figures and thousands separators."""
    if value is None or not math.isfinite(value):
        return MISSING
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def rate(value: float | None) -> str:
    """Return samples per second."""
    return f"{number(value)} samples/s" if known(value) else MISSING


def interval(low: float, high: float) -> str:
    """Return a band."""
    return f"{number(low)}-{number(high)}"


def percent(share: float | None, digits: int = 0) -> str:
    """Return a share (1.0 = all) in percent."""
    if share is None or not math.isfinite(share):
        return MISSING
    return shares_in_words.percent(share, digits)


def percents(shares: Sequence[float], digits: int = 0) -> tuple[str, ...]:
    """Return shares of a whole in percent, rounded so that the figures sum to 100 (largest remainders)."""
    total, step = sum(shares), 10**digits
    if not (math.isfinite(total) and total > 0):
        return (MISSING,) * len(shares)
    exact = [100 * step * share / total for share in shares]
    whole = [math.floor(e) for e in exact]
    order = sorted(range(len(exact)), key=lambda i: whole[i] - exact[i])
    for i in order[: 100 * step - sum(whole)]:
        whole[i] += 1
    return tuple(f"{n / step:.{digits}f} %" for n in whole)


def signed_percent(share: float | None) -> str:
    """Return a relative change, with its sign."""
    if share is None or not math.isfinite(share):
        return MISSING
    return shares_in_words.signed_percent(share, 1)


def memory(mib: float | None) -> str:
    """Return MiB, or GiB from 1 GiB on."""
    if mib is None or not math.isfinite(mib):
        return MISSING
    return f"{mib / 1024:,.2f} GiB" if abs(mib) >= 1024 else f"{mib:,.0f} MiB"


def duration(seconds: float | None) -> str:
    """Return a time span in the unit that reads best."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if abs(seconds) < 1:
        return f"{1000 * seconds:.3g} ms"
    if abs(seconds) < 90:
        return f"{seconds:.3g} s"
    if abs(seconds) < 5400:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:,.1f} h"


def ago(seconds: float) -> str:
    """Return how long ago something was, in its largest unit: the words change as seldom as they can."""
    for name, unit_s in (("day", 86_400), ("h", 3600), ("min", 60)):
        n = int(seconds // unit_s)
        if n >= (2 if name == "day" else 1):
            return f"{counted(n, name) if name == 'day' else f'{n} {name}'} ago"
    return "just now"


@dataclass(frozen=True, slots=True)
class Currency:
    """A currency, and whether its prices are only assumed: then money is never shown without saying so."""

    name: str = ""  # empty, as of a single record: unknown
    assumed: bool = False

    @property
    def note(self) -> str:
        """What follows an amount, or the unit of a column."""
        return f", {ASSUMED}" if self.assumed else ""


def money(value: float | None, currency: Currency, *, per: str = "") -> str:
    """Return an amount with its currency, ``per`` something; None: the price is unknown.

    Without a currency only the number is shown. The caller adds the currency's `note`, once a line.
    """
    if value is None or not math.isfinite(value):
        return PRICE_UNKNOWN
    if not currency.name:
        return f"{value:,.4g}{' per ' + per if per else ''}"
    return f"{value:,.4g} {currency.name}{'/' + per if per else ''}"


def signed_money(value: float, currency: Currency, *, per: str) -> str:
    """Return a difference of amounts, with its sign."""
    return f"{'+' if value >= 0 else '-'}{money(abs(value), currency, per=per)}"


def cores(value: float | None) -> str:
    """Return CPU cores."""
    return f"{value:.2f}" if value is not None and math.isfinite(value) else MISSING


def elapsed(seconds: float | None) -> str:
    """Return a time since the start in clock format, the same for short and for long times."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if round(seconds) < 0:
        return BEFORE  # as a fit that an earlier job of the name left
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def counted(n: int, what: str) -> str:
    """Return a number of things: ``1 job``, ``2 jobs``."""
    return f"{n:,} {what}{'s' if n != 1 else ''}"


def unbroken(text: str) -> str:
    """Return text that tables do not wrap: with no-break spaces, which plain text converts back."""
    return text.replace(" ", NO_BREAK)


FIRST_DATE_S = 1e9  # simulations begin at 0


def clock(at_s: float | None) -> str:
    """Return a moment as UTC: a saved view is read elsewhere, later. Virtual time of a simulation is none."""
    if at_s is None or not math.isfinite(at_s):
        return MISSING
    if at_s < FIRST_DATE_S:
        return f"{duration(at_s)} of virtual time"
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
