"""Shares as all texts write them: ``21 %``, with a space; for screens, stories, errors and tables alike."""

from __future__ import annotations


def percent(share: float, digits: int = 0) -> str:
    """Return a share (1.0 = all) in percent."""
    return f"{round(100 * share, digits) + 0.0:.{digits}f} %"  # no minus sign before zero


def signed_percent(share: float, digits: int = 0) -> str:
    """Return a relative change in percent, with its sign."""
    return f"{round(100 * share, digits) + 0.0:+.{digits}f} %"


def chance_words(chance: float) -> str:
    """Return a probability; never a certainty, as none is."""
    return "< 1 %" if chance < 0.01 else "> 99 %" if chance > 0.99 else percent(chance)
