"""The hash chain of the audit: each row's hash covers the row and the hash of the one before it.

So a row that is changed, removed or put elsewhere is found, as long as one later hash is known from
elsewhere: the head lies in a row of its own, each export ends with it, and a server writes it to its log.
Somebody who may write the whole database can compute a chain anew; that is noticed by comparing its head
with one of those.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from dlrover_nb.core.codec import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.commands import AuditRow, ChainedRow

START = "0" * 64  # what stands before the first row


def chained_hash(before: str, seq: int, row: AuditRow) -> str:
    """Return the hash of a row at a place in the chain: 64 hexadecimal digits."""
    return sha256(b"\n".join((before.encode(), str(seq).encode(), to_json(row)))).hexdigest()


def faults(rows: Iterable[ChainedRow], head: tuple[int, str], *, anchor: str = "") -> tuple[str, ...]:
    """Return what is wrong with a chain, as sentences; none: nothing.

    Parameters
    ----------
    rows
        All of it, by their number.
    head
        Number and hash of the last row, as they are kept apart from the rows.
    anchor
        A hash that was written down elsewhere, which must be that of a row; empty: none is compared.
    """
    found: list[str] = []
    before, expected, is_anchored = START, 1, not anchor
    for each in rows:
        if each.seq != expected:
            missing = f"row {expected}" if each.seq == expected + 1 else f"rows {expected} to {each.seq - 1}"
            found.append(f"{missing} must stand before row {each.seq}, but is not there: it was removed")
        elif each.hash != chained_hash(before, each.seq, each.row):
            found.append(
                f"row {each.seq} does not match its hash: it, or the row before it, was changed or moved"
            )
        before, expected = each.hash, each.seq + 1
        is_anchored = is_anchored or each.hash == anchor
    if (expected - 1, before) != head:
        found.append(
            f"the last row must be {head[0]} with hash {head[1][:12]}, got {expected - 1} with "
            f"{before[:12]}: "
            "rows at the end were removed or added"
        )
    if not is_anchored:
        found.append(f"no row has the hash {anchor[:12]}: the chain is not the one that was written down")
    return tuple(found)
