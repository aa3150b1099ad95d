"""The service: one brain of several holds the lease of a cluster, and plans at intervals.

The lease is in the history's database, which all brains share. A brain without it waits, and takes over
when its holder has not renewed it. While the database cannot be reached no lease is renewed: the holder stops
planning when its own lease is over, and masters go on by themselves. A failed round is told and tried again
at the next interval; no error ends the service.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.brain.planning_round import Rounds, Term
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.structs import _check

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.brain.cluster_plan import BrainSettings
    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.history.stores.brain_rounds import RoundStore
    from dlrover_nb.core.history.stores.leases import LeaseStore
    from dlrover_nb.core.structs.views.brain import BrainRound

logger = logging.getLogger(__name__)

N_RENEWED = 3  # times that a lease is renewed before it would be over
LASTS_INTERVALS = 10  # that an allotment holds without another


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How often it plans, and how long a lease is held without a renewal, in seconds."""

    interval_s: float = 30.0
    lease_s: float = 15.0

    def __post_init__(self) -> None:
        _check.above_zero("interval_s", self.interval_s)
        _check.above_zero("lease_s", self.lease_s)


def own_name() -> str:
    """Return a name for this process among brains."""
    return f"brain on {socket.gethostname()}, process {os.getpid()}"


class Brain:
    """Plans for one cluster while it holds the lease.

    Parameters
    ----------
    cluster, name
        The cluster, and what it is called: the same in all its brains.
    leases, rounds
        The stores of leases and of rounds, in the shared history.
    settings, rhythm
        How plans are chosen, and when.
    by
        Its own name, unlike that of any other.
    on_round
        Called with each round.
    """

    def __init__(  # noqa: PLR0913 - its surroundings, all but two by keyword
        self,
        cluster: Cluster,
        name: str,
        *,
        leases: LeaseStore,
        rounds: RoundStore,
        settings: BrainSettings,
        rhythm: Rhythm | None = None,
        by: str = "",
        on_round: Callable[[BrainRound], None] = lambda _: None,
    ) -> None:
        self._name, self._leases, self._kept = name, leases, rounds
        self._rhythm, self._by = rhythm or Rhythm(), by or own_name()
        self._rounds = Rounds(
            cluster, name, settings, lasts_s=LASTS_INTERVALS * self._rhythm.interval_s, clock=SystemClock()
        )
        self._on_round = on_round
        self._term, self._held_until_s = 0, 0.0  # by the monotonic clock of this process
        self._sole_since = 0  # the term since when no other brain held the lease
        self._planned_in = 0  # the term of the last round
        self._lock = threading.Lock()  # the masters of a round are told by many threads
        self._told: BrainRound | None = None  # the last round that said something new
        self._newest: BrainRound | None = None  # kept after it
        self._trouble = self._holder = ""

    @property
    def leads(self) -> bool:
        """Whether it holds the lease, by its own clock."""
        return time.monotonic() < self._held_until_s

    def run(self, stop: threading.Event) -> None:
        """Plan until `stop` is set, and give up the lease."""
        next_s = 0.0
        while not stop.is_set():
            self.renew()
            if self.leads and time.monotonic() >= next_s:
                next_s = time.monotonic() + self._rhythm.interval_s
                self.plan()
            stop.wait(min(self._rhythm.lease_s / N_RENEWED, self._rhythm.interval_s))
        self.resign()

    def renew(self) -> bool:
        """Take or renew the lease; return whether it holds it.

        Its time counts from before the call: an answer that comes late makes it no longer.
        """
        asked_s = time.monotonic()
        try:
            lease = self._leases.take(self._lease, self._by, self._rhythm.lease_s)
        except DlroverError as error:
            self._tell(f"could not renew the lease: {error.text}")
            return self.leads
        self._holder = lease.holder
        if lease.holder != self._by:
            if self.leads:
                logger.warning("%s has taken over", lease.holder)
            self._held_until_s = 0.0
            return False
        if lease.term != self._term:
            logger.info("%s plans for %s, term %d", self._by, self._name, lease.term)
        if lease.term > self._term + 1 or not self._term:
            self._sole_since = lease.term  # another had it meanwhile
        self._term, self._held_until_s = lease.term, asked_s + self._rhythm.lease_s
        return True

    def plan(self) -> BrainRound | None:
        """Plan once; None where that failed."""
        try:
            return self.planned()
        except DlroverError as error:
            self._tell(f"planning failed: {error.text}")
            return None
        except Exception:
            logger.exception("planning failed: an error in the brain itself")
            return None

    def planned(self) -> BrainRound:
        """Plan once.

        Raises
        ------
        BackendError
            When the cluster does not answer.
        """
        if self._planned_in < self._sole_since:
            self._rounds.adopt(each for last in self._kept.newest(self._name) for each in last.holding)
        self._planned_in = term = self._term
        new_round = self._rounds.run(Term(self._by, term, lambda: self._may_act(term)))
        self._trouble = ""
        self._keep(new_round)
        self._on_round(new_round)
        return new_round

    def _may_act(self, term: int) -> bool:
        """Whether it leads since a term; a long round renews the lease, unless another had it meanwhile."""
        with self._lock:
            if 0.0 < self._held_until_s < time.monotonic() + self._rhythm.lease_s / N_RENEWED:
                self.renew()
        return self.leads and self._sole_since <= term

    @property
    def holder(self) -> str:
        """Who holds the lease, as far as it was seen last."""
        return self._holder

    def resign(self) -> None:
        """Give up the lease, so that another brain takes over at once."""
        self._held_until_s = 0.0
        try:
            self._leases.release(self._lease, self._by)
        except DlroverError as error:
            logger.warning("could not give up the lease, it will expire: %s", error.text)

    @property
    def _lease(self) -> str:
        return f"brain of {self._name}"[:160]

    def _keep(self, new_round: BrainRound) -> None:
        """Keep a round; after the last one that said something new there is the newest one alone."""
        is_new = new_round.says_more_than(self._told)
        try:
            self._kept.add(new_round, instead_of=None if is_new else self._newest)
        except DlroverError as error:
            self._tell(f"could not store the round: {error.text}")
            return
        self._told, self._newest = (new_round, None) if is_new else (self._told, new_round)

    def _tell(self, what: str) -> None:
        """Log a trouble once while it lasts."""
        if what != self._trouble:
            logger.warning(what)
            self._trouble = what
