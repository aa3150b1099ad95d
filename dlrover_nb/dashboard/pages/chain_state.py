"""How far this server has checked the chain of the audit.

A visit reads on for a bounded number of rows, from where the last one stopped: a page must not wait for a
million rows, and yet says of every row that it was read. What was read before may be changed since; so a
round begins again from row 1 when a person asks for it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from dlrover_nb.core.history.audit.chain import ChainCheck

if TYPE_CHECKING:
    from dlrover_nb.core.history.audit.chain import Chain
    from dlrover_nb.dashboard.common.team import Team

MOST_ROWS = 20_000  # that one visit reads


@dataclass(frozen=True, slots=True)
class ChainState:
    """How far a check has come.

    Parameters
    ----------
    seq, hash
        Of the last row that was read.
    n_row
        Number of the last row that there is.
    faults
        What is wrong so far, as sentences.
    """

    seq: int
    hash: str
    n_row: int
    faults: tuple[str, ...]

    @property
    def words(self) -> str:
        """The state as a sentence."""
        if self.n_row == 0 and not self.faults:
            return "The audit is empty."
        reached = f"verified up to row {self.seq:,} of {self.n_row:,}, head {self.hash[:12]}"
        if self.faults:
            return f"The audit is NOT as it was written ({reached})."
        return f"Every row is as it was written: {reached}."


class ChainWatch:
    """Checks one chain, some rows at each call; for any thread."""

    def __init__(self) -> None:
        self._check, self._lock = ChainCheck(), threading.Lock()

    def read_on(self, chain: Chain, *, again: bool = False, most: int = MOST_ROWS) -> ChainState:
        """Read the next rows, or the first ones again, and return how far that is."""
        with self._lock:
            if again:
                self._check = ChainCheck()
            check, head = self._check, chain.head()
            links = takewhile(lambda link: link.seq <= head[0], chain.links(after=check.seq))
            before = check.seq
            check.read(islice(links, most))
            is_read = check.seq - before < most
            return ChainState(check.seq, check.hash, head[0], check.faults(head) if is_read else check.found)


_WATCHES: WeakKeyDictionary[Team, ChainWatch] = WeakKeyDictionary()
_LOCK = threading.Lock()


def chain_state(team: Team, *, again: bool = False) -> ChainState:
    """Return how far the audit of a team is checked; this call reads on."""
    with _LOCK:
        watch = _WATCHES.setdefault(team, ChainWatch())
    return watch.read_on(team.audit, again=again)
