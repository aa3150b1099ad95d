"""Where one part of a checkpoint is stored: in the memory of a host, with a peer on another, in a file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PeerCopies(StrEnum):
    """When each part of a checkpoint in memory is copied into the memory of another node.

    AUTO: where nodes are on several machines, or where no file outlives the node that wrote it.
    """

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


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
class PeerCopy:
    """A copy of a part that another node keeps in its memory.

    Parameters
    ----------
    holder
        Name of that node.
    memory
        Its shared memory; the number is that of the checkpoint.
    sha256
        Checksum of the image.
    """

    holder: str
    memory: MemoryPart
    sha256: str


@dataclass(frozen=True, slots=True)
class CopySource:
    """A part in the memory of a living node, which sends it to others of its job.

    Parameters
    ----------
    endpoint
        Where that node sends copies.
    memory
        What to ask for.
    sha256
        Checksum of the image; empty for what the PS itself holds, of which there is none yet.
    is_peer
        Whether it is the copy of a peer, and not the PS's own.
    """

    endpoint: str
    memory: MemoryPart
    sha256: str = ""
    is_peer: bool = True


@dataclass(frozen=True, slots=True)
class PartSource:
    """All places where one part of a checkpoint can be read, in the order in which they are tried.

    Parameters
    ----------
    url, sha256
        Path or URL of its file, and the checksum of that; both empty: not in a file yet.
    memory
        Its copy in memory of the host of its PS; None: there is none.
    copies
        The same in the memory of living nodes on any host.
    """

    url: str
    sha256: str
    memory: MemoryPart | None = None
    copies: tuple[CopySource, ...] = ()
