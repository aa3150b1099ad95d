"""What is wrong with a simulation, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass


class PromiseBrokenError(Exception):
    """Something that was promised and not kept."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(f"{kind}: {words}")
        self.kind = kind


class RefusedError(Exception):
    """The job does not go on, and says what to do: its files are damaged."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a simulation ended.

    Parameters
    ----------
    end
        The phase in which the job ended, or "refused".
    simulated_s
        Time that passed in it.
    kind, words
        What was wrong; empty: nothing.
    n_repeated
        Rows that were trained again since the master could not know of the first time.
    """

    seed: int
    end: str
    simulated_s: float
    kind: str = ""
    words: str = ""
    n_repeated: int = 0
