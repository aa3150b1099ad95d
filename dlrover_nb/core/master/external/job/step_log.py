"""Training steps parsed from a program's log, for programs that do not report.

Each line that matches the job's expression gives a new total, as a report does. So both are measured in the
same way, and a line's time is that of its writing by its machine's clock, whenever it is read. Where that
clock is set back, no time passes between two lines, and after that it passes as before.
"""

from __future__ import annotations

import math
import re

from dlrover_nb.core.structs.job.external import MOST_COUNT, StepsDone

LOG = "log"  # programs of totals that are read from a log: ``log-0``, after a restart ``log-1``, …


class StepLog:
    """Reads the lines of one node.

    Parameters
    ----------
    pattern
        `ExternalSpec.step_log`.
    batch_size
        Samples of a step that does not say how many.
    last
        The last total read of the node; None: none.
    """

    def __init__(self, pattern: str, batch_size: int, node: str, last: StepsDone | None = None) -> None:
        self._find, self._batch_size = re.compile(pattern).search, batch_size
        self._told = last or StepsDone(node, f"{LOG}-0")
        self._step: float | None = None
        self._back_s = 0.0  # how far the clock was set back

    def restart(self) -> None:
        """Note that the program restarted: its further totals are independent of earlier ones."""
        n_run = int(self._told.program.rpartition("-")[2])
        last = self._told
        self._told, self._step = StepsDone(last.node, f"{LOG}-{n_run + 1}", at_s=last.at_s), None

    def read(self, text: str, at_s: float) -> StepsDone | None:
        """Return the new totals of a line; None where it has none, or has those of the line before.

        The first step, also after a restart, counts as one: the number of steps before it is unknown.
        """
        match = self._find(text)
        if match is None:
            return None
        values = match.groupdict()
        step = _count(values.get("step"))
        if step is not None and step == self._step:
            return None  # progress bars write their last state twice
        if step is not None and self._step is not None and step < self._step:
            self.restart()
        before, self._step = self._step, step
        n_step = 1 if step is None or before is None else round(step - before)
        n_sample = _count(values.get("samples"))
        last = self._told
        n_new = round(n_step * (self._batch_size if n_sample is None else n_sample))
        n_done = _count(values.get("done"))
        self._back_s = max(self._back_s, last.at_s - at_s)
        self._told = StepsDone(
            last.node,
            last.program,
            at_s=at_s + self._back_s,
            n_iter=min(last.n_iter + n_step, MOST_COUNT),
            n_sample=min(last.n_sample + n_new, MOST_COUNT),
            n_done=None if n_done is None else round(n_done),
            loss=_number(values.get("loss")),
        )
        return self._told


def _number(text: str | None) -> float | None:
    """Parse a number as programs write it (``1,024``); None when it is none, or not finite (``nan``)."""
    try:
        value = math.nan if text is None else float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _count(text: str | None) -> float | None:
    """Parse a number of steps or samples; None for what cannot be one."""
    value = _number(text)
    return value if value is not None and 0 <= value <= MOST_COUNT else None
