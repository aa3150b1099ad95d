"""Where one part of a checkpoint lies: in the memory of a host, in a file, or in both."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One copy of a PS in shared memory, as whoever made it described it.

    Nothing says on which host: the name is unique to the job's run and `token` to this very copy, so that a
    reader elsewhere, or one that comes after the buffer was used again, is refused.

    Parameters
    ----------
    name
        Of the shared memory.
    number
        Of the checkpoint.
    token
        32 hexadecimal digits that no other copy has.
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
        Path or URL of its file, and the checksum of that; both empty: it is in no file yet.
    memory
        Where it is in memory too; None: nowhere.
    """

    url: str
    sha256: str
    memory: MemoryPart | None = None
