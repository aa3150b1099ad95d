"""Where one part of a checkpoint is stored: in the memory of a host, in a file, or both."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One copy of a PS in shared memory.

    The host is not recorded: the name is unique to the job's run and `token` to this copy, so a reader on
    another host, or after the buffer was reused, is refused.

    Parameters
    ----------
    name
        Name of the shared memory.
    number
        Of the checkpoint.
    token
        32 hexadecimal digits, unique to the copy.
    n_byte
        Length of the image.
    """

    name: str
    number: int
    token: str
    n_byte: int


@dataclass(frozen=True, slots=True)
class PartSource:
    """All places where one part of a checkpoint can be read.

    Parameters
    ----------
    url, sha256
        Path or URL of its file, and the checksum of that; both empty: not in a file yet.
    memory
        Its copy in memory; None: there is none.
    """

    url: str
    sha256: str
    memory: MemoryPart | None = None
