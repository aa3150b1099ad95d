"""The files of a job's data, as a submit found them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileRows:
    """One file of the data as it was when the job was submitted.

    Parameters
    ----------
    name
        Its path, or its URL without credentials.
    n_row
        Number of its rows.
    identity
        Hash of its size and of parts of its content.
    """

    name: str
    n_row: int
    identity: str
