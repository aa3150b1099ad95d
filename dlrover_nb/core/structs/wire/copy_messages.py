"""Messages by which parts of a checkpoint are copied into memory and to peers, and read from them.

The holder reads from the owner, piece by piece, and a PS that restores reads from the holder in the same way:
a read changes nothing, so any piece may be asked for again, and an owner keeps no account of its readers.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.structs.training.checkpoints import MemoryPart, PeerCopy

# master -> node


@dataclass(frozen=True, slots=True)
class KeepCopy:
    """To any node: read this part from its owner and keep it in memory, then answer CopyKept.

    Parameters
    ----------
    owner
        The PS whose part it is.
    endpoint, memory
        Where the owner sends it, and what to ask for.
    kept
        Number of the last checkpoint that peers keep as a whole, which must stay besides; older ones, of
        whatever owner, are freed. -1: there is none.
    """

    owner: str
    endpoint: str
    memory: MemoryPart
    kept: int = -1


# node -> master


@dataclass(frozen=True, slots=True)
class Cut:
    """A PS: its part of a checkpoint is what it holds now, and it may change again; Copied follows.

    What is not copied by then the PS saves before it changes.
    """

    node: str
    checkpoint: int


@dataclass(frozen=True, slots=True)
class CopyKept:
    """The end of a KeepCopy: the copy, or in `error` why there is none (any more)."""

    node: str
    owner: str
    checkpoint: int
    copy: PeerCopy | None = None
    error: str = ""


# node -> node


@dataclass(frozen=True, slots=True)
class ReadCopy:
    """Send `n_byte` bytes of an image in shared memory, from `start` on."""

    memory: MemoryPart
    start: int
    n_byte: int


@dataclass(frozen=True, slots=True)
class CopyRead:
    """A piece of an image; uint8 [n] beside it, of which `crc32` is the checksum."""

    token: str
    start: int
    crc32: int


CopyTraffic = ReadCopy | CopyRead
