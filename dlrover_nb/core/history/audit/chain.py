"""The hash chain of the audit: each row's hash covers the row and the hash of the one before it.

So a row that is changed, removed or put elsewhere is found, as long as one later hash is known from
elsewhere: the head lies in a row of its own, each export ends with it, and a server writes it to its log.
A person who may write the whole database can compute a chain anew; that is noticed by comparing its head
with one of those.

A check reads rows as they are stored, one after the other, and keeps the place and the hash of the last
alone: a million rows need no more memory than ten. It hashes the text that is stored, not the record that the
text means: so a change that decodes to the same record is found too, and rows of a release whose records had
fewer fields stay sound.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol

from dlrover_nb.core.codec import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dlrover_nb.core.structs.decisions.commands import AuditRow, ChainedRow

START = "0" * 64  # what stands before the first row
MOST_FAULTS = 100  # that are told one by one


@dataclass(frozen=True, slots=True)
class Link:
    """A row of the chain as it is stored.

    Parameters
    ----------
    text
        The row as JSON, which its hash covers.
    doubt
        What beside the hash is wrong with it, as half a sentence; empty: nothing.
    """

    seq: int
    hash: str
    text: bytes
    doubt: str = ""


class Chain(Protocol):
    """What keeps a chain; every implementation meets `tests/support/conformance/audit.py`."""

    def head(self) -> tuple[int, str]:
        """Return number and hash of the last row, as they are kept apart from the rows."""
        ...

    def links(self, *, after: int = 0) -> Iterator[Link]:
        """Yield the rows as they are stored, by their number."""
        ...


def chained_hash(before: str, seq: int, row: AuditRow) -> str:
    """Return the hash of a row at a place in the chain: 64 hexadecimal digits."""
    return hash_of(before, seq, to_json(row))


def hash_of(before: str, seq: int, text: bytes) -> str:
    """Return the hash of a row that is stored as this text."""
    return sha256(b"\n".join((before.encode(), str(seq).encode(), text))).hexdigest()


def link_of(chained: ChainedRow) -> Link:
    """Return a row as it is stored."""
    return Link(chained.seq, chained.hash, to_json(chained.row))


class ChainCheck:
    """A check of a chain, which reads on where it is.

    Parameters
    ----------
    anchor
        A hash that was written down elsewhere, which must be that of a row; empty: none is compared. Its
        first digits are enough.

    Attributes
    ----------
    seq, hash
        Of the last row that was read.
    n_fault
        How many faults were found.
    """

    def __init__(self, *, anchor: str = "") -> None:
        self.seq, self.hash, self.n_fault = 0, START, 0
        self._anchor, self._is_anchored = anchor, not anchor
        self._found: list[str] = []

    def read(self, links: Iterable[Link]) -> None:
        """Read the rows that follow."""
        for link in links:
            self._read(link)

    @property
    def found(self) -> tuple[str, ...]:
        """What is wrong with the rows that were read, as sentences; none: nothing."""
        more = self.n_fault - len(self._found)
        return (*self._found, *((f"{more:,} more rows are at fault",) if more else ()))

    def faults(self, head: tuple[int, str]) -> tuple[str, ...]:
        """Return what is wrong as sentences, the last row compared with the head; none: nothing."""
        sentences = list(self.found)
        if (self.seq, self.hash) != head:
            sentences.append(
                f"the last row must be {head[0]} with hash {head[1][:12]}, got {self.seq} with "
                f"{self.hash[:12]}: rows at the end were removed or added"
            )
        if not self._is_anchored:
            sentences.append(
                f"no row has the hash {self._anchor[:12]} that you noted: "
                "rows were changed, or this is another audit"
            )
        return tuple(sentences)

    def _read(self, link: Link) -> None:
        expected = self.seq + 1
        if link.seq > expected:
            missing = f"row {expected}" if link.seq == expected + 1 else f"rows {expected} to {link.seq - 1}"
            self._fault(f"{missing} must stand before row {link.seq}, but is not there: it was removed")
        elif link.seq < expected:
            self._fault(f"row {link.seq} stands behind row {self.seq}: it was moved there, or added")
        elif link.hash != hash_of(self.hash, link.seq, link.text):
            self._fault(
                f"row {link.seq} does not match its hash: it, or the row before it, was changed or moved"
            )
        elif link.doubt:
            self._fault(f"row {link.seq} {link.doubt}: it was changed")
        self.seq, self.hash = link.seq, link.hash
        self._is_anchored = self._is_anchored or link.hash.startswith(self._anchor)

    def _fault(self, sentence: str) -> None:
        self.n_fault += 1
        if len(self._found) < MOST_FAULTS:
            self._found.append(sentence)


def faults(rows: Iterable[ChainedRow], head: tuple[int, str], *, anchor: str = "") -> tuple[str, ...]:
    """Return what is wrong with the rows of a whole chain, as sentences; none: nothing."""
    check = ChainCheck(anchor=anchor)
    check.read(map(link_of, rows))
    return check.faults(head)


def verified(chain: Chain, *, anchor: str = "") -> tuple[ChainCheck, tuple[str, ...]]:
    """Check a whole chain, to which others may append meanwhile; return the check, and what is wrong.

    The head is read before the rows, and again where rows came meanwhile: a head that is newer than the rows
    would look like rows that were removed.
    """
    check = ChainCheck(anchor=anchor)
    while True:
        head = chain.head()
        check.read(chain.links(after=check.seq))
        if check.seq > head[0]:
            head = chain.head()
        if check.seq >= head[0] or not _has_more(chain, check.seq):
            return check, check.faults(head)


def _has_more(chain: Chain, after: int) -> bool:
    return next(chain.links(after=after), None) is not None
