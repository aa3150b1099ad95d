"""The rows of one process of an elastic job, taken ahead of what is known to count."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from .session import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .shards import Shard, Source

AGAIN_S = 0.3  # between requests for rows while there are none to grant
B_co = TypeVar("B_co", covariant=True)


class Work(Protocol[B_co]):
    """A shard that batches are taken of; its rows are counted from the beginning of the shard.

    Attributes
    ----------
    shard, grant, end
        The shard, the number of its grant, and the row that its lease ends before.
    """

    shard: Shard
    grant: int
    end: int

    @property
    def n_left(self) -> int:
        """Rows that are not taken."""

    @property
    def place(self) -> tuple[int, int]:
        """Its grant, and the row before which all are taken."""

    def take(self, size: int) -> B_co:
        """Return the next batch, at most `size` rows."""

    def confirm(self, n_row: int) -> None:
        """Count the rows before this one as done."""

    def rewind(self) -> None:
        """Take again what is not done."""


class Rows(Generic[B_co]):
    """The rows of one process, taken ahead of what is known to count.

    A step counts once all members have begun the next one: until then its rows may have to be taken again.

    Parameters
    ----------
    source
        Where shards come from.
    opened
        Returns what batches are taken of, for a shard; it is called in a thread, and may read the rows.
    """

    def __init__(self, source: Source, opened: Callable[[Shard], Work[B_co]]) -> None:
        self._source, self._opened = source, opened
        self._pool = ThreadPoolExecutor(1, "dlrover-nb-rows")
        self._works: deque[Work[B_co]] = deque()
        self._coming: Future[Work[B_co] | None] | None = None
        self._ask_at_s = 0.0
        self._confirmed = 0, 0
        self.place = 0, 0  # after the rows that were taken

    @property
    def is_over(self) -> bool:
        """Whether all rows are taken, here and elsewhere."""
        joined = session()
        is_left = any(each.n_left for each in self._works) or self._coming is not None
        return not is_left and (joined is None or bool(joined.state()["is_over"]))

    def take(self, size: int) -> B_co | None:
        """Return the next batch, at most `size` rows of one shard; None: there are none now."""
        self._draw()
        work = next(self._ready(), None)
        if work is None:
            return None
        batch = work.take(size)
        self.place = work.place
        return batch

    def confirm(self, place: tuple[int, int]) -> None:
        """Count the rows up to a place as done: nothing takes them back any more."""
        grant, n_row = place
        self._confirmed = max(self._confirmed, place)
        for each in tuple(self._works):
            if each.grant < grant or (each.grant == grant and n_row >= each.end):
                each.confirm(each.end)
                self._works.remove(each)
            elif each.grant == grant:
                each.confirm(n_row)

    def seek(self, grant: int, n_row: int) -> None:
        """Go on from a place: rows before it are done, those after it are taken again."""
        self.confirm((grant, n_row))
        self.rewind()

    def rewind(self) -> None:
        """Take again what does not count."""
        self.place = self._confirmed
        for each in self._works:
            each.rewind()
        self._works = deque(each for each in self._works if not each.shard.is_stale)

    def close(self) -> None:
        """End the thread.

        Nothing is given back: a process that leaves the others cannot know what of its last step counts. They
        report that to the master, which takes back the rest.
        """
        self._pool.shutdown(wait=False)

    def _ready(self) -> Iterator[Work[B_co]]:
        return (each for each in self._works if each.n_left and not each.shard.is_stale)

    def _draw(self) -> None:
        """Have a shard in reserve, so that no step waits for the master."""
        n_ready = sum(1 for _ in self._ready())
        if self._coming is None and n_ready < 2 and time.monotonic() >= self._ask_at_s:
            self._coming = self._pool.submit(self._drawn)
        if self._coming is not None and (self._coming.done() or not n_ready):
            work, self._coming = self._coming.result(), None
            if work is None:
                self._ask_at_s = time.monotonic() + AGAIN_S
            else:
                self._works.append(work)

    def _drawn(self) -> Work[B_co] | None:
        shard = self._source.draw(wait=False)
        return None if shard is None else self._opened(shard)
