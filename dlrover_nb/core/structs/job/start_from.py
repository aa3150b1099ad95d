"""Where a job begins: from the last checkpoint of an earlier run instead of untrained parameters.

Parameters alone is the default, for retraining on new rows: values and optimizer state come from the
checkpoint, and all rows of the job are trained. With the account of rows, training goes on where that run
stopped in the same data; each row that it had trained is not trained again.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.basics.redaction import BareRepr


@dataclass(frozen=True, slots=True, repr=False)
class StartFrom(BareRepr):
    """The checkpoint that a job begins from.

    Parameters
    ----------
    source
        A job's name (its newest run that has a checkpoint), a run folder, the id of a run in the history, or
        the folder or URL of a checkpoint.
    rows
        Whether to take over the account of rows too.
    """

    source: str = ""
    rows: bool = False


@dataclass(frozen=True, slots=True)
class BeganFrom:
    """The checkpoint that a job has begun from, as it was found.

    Parameters
    ----------
    place
        Run and number of the checkpoint, as text without credentials.
    at_s
        When it was copied (seconds since 1970).
    n_sample
        Samples of the account of rows that was taken over; 0: parameters alone.
    spent
        Money that its job had spent on these rows by then; 0 with parameters alone.
    """

    place: str
    at_s: float
    n_sample: int = 0
    spent: float = 0.0

    def __str__(self) -> str:
        """Return it as text for views."""
        account = f"with its account of {self.n_sample:,} samples" if self.n_sample else "parameters alone"
        return f"{self.place}, {account}"


def is_path(source: str) -> bool:
    """Whether a source is a folder and neither a URL nor the name or id of a run."""
    return "://" not in source and ("/" in source or source.startswith(("~", ".")))
