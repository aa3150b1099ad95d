"""Events of a job, one line each, for display and for error messages that quote them."""

from __future__ import annotations

from collections import deque

N_LINE = 1000  # lines that are kept; the history keeps all


class Story:
    """One line per fact, with seconds since the first."""

    def __init__(self) -> None:
        self._began_s: float | None = None
        self._lines: deque[tuple[str, str]] = deque(maxlen=N_LINE)

    def add(self, at_s: float, text: str, *, about: str = "") -> None:
        """Add a fact; `about` is the id of the proposal that it belongs to."""
        if self._began_s is None:
            self._began_s = at_s
        self._lines.append((about, f"{at_s - self._began_s:+.1f} s  {text}"))

    @property
    def lines(self) -> tuple[str, ...]:
        """All lines, oldest first."""
        return tuple(line for _, line in self._lines)

    def about(self, proposal: str) -> tuple[str, ...]:
        """Return the lines of one proposal."""
        return tuple(line for about, line in self._lines if about == proposal)
