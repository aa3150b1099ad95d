"""Shares as all texts write them: ``21 %``, with a space, AUC as a fraction; for all screens and errors."""

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


def fraction(value: float) -> str:
    """Return an AUC or a part of one, to the digits that matter: ``0.003``, ``0.0004``."""
    return f"{value:.{3 if abs(value) >= 0.00095 else 4}f}"


def signed_fraction(value: float) -> str:
    """Return a change of an AUC: ``-0.003``; ``0`` without a sign."""
    text = fraction(abs(value))
    return f"{'-' if value < 0 else '+'}{text}" if float(text) else "0"
