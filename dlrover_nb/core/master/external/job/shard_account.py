"""The shards of an external job: which process of which node trains which rows.

The ledger is that of own jobs (`core.sharding`), made when a program first asks. A lease belongs to one
process of one node (`Caller.owner`), since a node may run several. It is taken back, with the rows
acknowledged,

- when the node is lost, or its program has ended;
- when another process begins in the place of the owner (`Caller.slot`): the owner has ended then, as the
  programs of a node are restarted without their node;
- when the owner is silent for `SILENT_S`, and another process asks for rows: a process may end alone, and its
  node go on. A process that trains alone may be silent for any time.

What a member of an elastic job's world holds is taken back with the next world only, whatever of these
happens: the other members' parameters contain rows of it that it could not report.

A process that lost its place is refused from then on: what it still sends must not be taken for the act of
its successor.

Rows and parameters are tied by the programs: `rows` is the account of one moment, which they keep in the same
file as the parameters, and `restore` goes back to it when these are loaded. All processes of one start load
the same parameters, so the first of them decides: a second `restore` must not take back what the first one's
peers have trained since, and one to another account is refused, since their parameters differ too. One that
arrives once more, as a network may bring it after the next start, has no effect.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.sharding.split import LedgerCheckpoint, Split
from dlrover_nb.core.structs.training.shards import Lease, Purpose, Shard

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.training.shards import ShardCounts
    from dlrover_nb.core.structs.wire.services import Caller, Held, Reached, RowsTrained

SILENT_S = 60.0  # a process reports every second or two, but may be stopped for a while by its host
MOST_ENDED = 4096  # leases that ended lately: each process repeats its last request only


@dataclass(frozen=True, slots=True)
class RestoredRecord:
    """Checkpoints of programs: the last start that loaded parameters, or found none, and the newest since.

    Parameters
    ----------
    rendezvous
        Its number.
    by
        Places that did, each with the process and its number of that request.
    digest
        Of the account of rows; empty: none was found.
    n_kept
        Samples that the newest account contains which programs loaded, or asked for to keep it with their
        parameters: what came after it is done again by those that restart. None: they do neither.
    numbers
        The newest request of each process that lives, by its owner's name.
    """

    rendezvous: int = 0
    by: tuple[tuple[str, str], ...] = ()
    digest: str = ""
    n_kept: int | None = None
    numbers: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ProcessesRecord:
    """The processes that use the services: the present one of each place, and those that lost their places.

    Both are of nodes that are there, so there are few.
    """

    present: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()


class ShardAccount:
    """Accounts for the rows of one job.

    Parameters
    ----------
    spec
        The job, which defines rows, passes and shards.

    Attributes
    ----------
    ledger
        None until a program asks.
    restored, processes
        The last start that loaded parameters, and the processes of the job.
    heard_s
        When each process that lives was last heard, by its owner's name.
    silent
        Those of them that were not heard for long: others may have what they hold.
    """

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self.ledger: ShardLedger | None = None
        self.restored, self.processes = RestoredRecord(), ProcessesRecord()
        self.heard_s: dict[str, float] = {}
        self.silent: set[str] = set()
        self._owners: dict[str, str] = {}  # by place
        self._ended: dict[Held, None] = {}  # a set that keeps its order

    def adopt(self, ledger: ShardLedger, ended: Iterable[Held]) -> None:
        """Continue with the ledger of an earlier master, and the leases that ended by it."""
        self.ledger, self._ended = ledger, dict.fromkeys(ended)

    def revive(self, restored: RestoredRecord, processes: ProcessesRecord, at_s: float) -> None:
        """Continue with the processes of an earlier master; none is silent for having had no master."""
        self.restored, self.processes = restored, processes
        self._owners = {_place(owner): owner for owner in processes.present}
        self.heard_s = dict.fromkeys(processes.present, at_s)

    # processes

    def hear(self, caller: Caller, at_s: float, *, protected: Collection[str] = ()) -> None:
        """Note a sign of life; take back what an earlier process in its place held, but for the `protected`.

        Raises
        ------
        InvalidValueError
            When another process has taken the caller's place.
        """
        owner, before = caller.owner, self._owners.get(caller.place)
        if owner in self.processes.replaced:
            raise InvalidValueError(
                f"another process has taken place {caller.slot} of {caller.node}; this one should have ended "
                "(where a program has several processes, each needs a LOCAL_RANK of its own)"
            )
        self.heard_s[owner] = at_s
        self.silent.discard(owner)
        if before == owner:
            return
        replaced = self.processes.replaced
        if before is not None:
            if before in protected:
                self.heard_s.pop(before, None)
            else:
                self._forget(before)
            replaced = (*replaced, before)
        self._owners[caller.place] = owner
        self.processes = ProcessesRecord(tuple(self._owners.values()), replaced)

    def release_node(self, node: str, *, killed: bool = False) -> None:
        """Take back what processes of a node hold; `killed`: rows of the present ones may be the reason."""
        gone = [owner for owner in self._owners.values() if _node(owner) == node]
        replaced = [owner for owner in self.processes.replaced if _node(owner) == node]
        for owner in gone:
            self._forget(owner, killed=killed)
            del self._owners[_place(owner)]
        for owner in replaced:
            self._forget(owner)  # a member of a world holds its rows still
        if gone:
            others = (owner for owner in self.processes.replaced if owner not in replaced)
            self.processes = ProcessesRecord(tuple(self._owners.values()), tuple(others))

    def note_silent(self, at_s: float, *, protected: Collection[str] = ()) -> None:
        """Let others have what processes hold that were not heard for long, but for the `protected`.

        It is taken back when one of them asks: a process that trains alone, and goes on, would train again
        what it could not report.
        """
        silent = {owner for owner, heard_s in self.heard_s.items() if at_s > heard_s + SILENT_S}
        self.silent = silent.difference(protected)

    def release_replaced(self) -> None:
        """Take back what processes hold that lost their places."""
        for owner in self.processes.replaced:
            self._forget(owner)

    def release_unknown(self, nodes: Iterable[str]) -> None:
        """Take back what processes of all but these nodes hold."""
        for node in sorted({_node(owner) for owner in self._owners.values()} - set(nodes)):
            self.release_node(node)

    def _forget(self, owner: str, *, killed: bool = False) -> None:
        self.heard_s.pop(owner, None)
        self.silent.discard(owner)
        if self.ledger is not None:
            self.ledger.release(owner, killed=killed)

    # shards

    def wanted(self, caller: Caller, holding: Iterable[Held], n_row: int) -> Shard | None:
        """Return a shard to train: one whose grant was lost on its way, else the next; None: nothing now.

        Raises
        ------
        InvalidValueError
            When the caller counts other rows, or the job's rows are no whole passes.
        """
        ledger, received = self._begun(n_row), set(holding)
        for owner in sorted(self.silent):
            self._forget(owner)
        lost = (s for s in ledger.held(caller.owner) if (s.lease.shard, s.lease.grant) not in received)
        return next(lost, None) or ledger.grant(caller.owner)

    def trained(self, caller: Caller, done: Iterable[RowsTrained]) -> bool:
        """Acknowledge rows; return whether any of them were of a lease that the caller holds.

        A lease whose last row is done ends; a repeated report of that has no effect, and one of a lease that
        was taken back is counted as refused.
        """
        has_worked = False
        for each in done:
            if self.ledger is None or (each.shard, each.grant) in self._ended:
                continue
            lease = Lease(Purpose.TRAIN, each.shard, each.grant)
            end = next((s.end for s in self.ledger.held(caller.owner) if s.lease == lease), None)
            if end is None:
                self.ledger.refuse()
                continue
            has_worked |= each.n_row > 0
            if each.n_row < end:
                self.ledger.progress(caller.owner, lease, each.n_row)
            else:
                self.ledger.complete(caller.owner, lease)
                self._note_end((each.shard, each.grant))
        return has_worked

    def reach(self, reached: Iterable[Reached]) -> None:
        """Count rows as done that are in the job's parameters, of any process."""
        ledger = self._begun(0)
        for each in reached:
            for shard in ledger.held(each.owner):
                grant = shard.lease.grant
                if grant < each.grant or (grant == each.grant and each.n_row >= shard.end):
                    ledger.complete(each.owner, shard.lease)
                    self._note_end((shard.lease.shard, grant))
                elif grant == each.grant:
                    ledger.progress(each.owner, shard.lease, each.n_row)

    def give_back(self, caller: Caller, leases: Iterable[Held]) -> None:
        """Take back leases; those that the caller does not hold are left alone."""
        for shard, grant in leases:
            if self.ledger is not None:
                self.ledger.give_back(caller.owner, Lease(Purpose.TRAIN, shard, grant))

    def stale(self, caller: Caller, done: Iterable[RowsTrained], holding: Iterable[Held]) -> tuple[Held, ...]:
        """Return the leases that do not hold any more: of `done` only those that did not end by it."""
        valid = () if self.ledger is None else self.ledger.leases(caller.owner)
        current = {(lease.shard, lease.grant) for lease in valid}
        lost = {(each.shard, each.grant) for each in done} - current - self._ended.keys()
        return tuple(sorted(lost | (set(holding) - current)))

    def counts(self) -> ShardCounts | None:
        """Return the samples done; None before a program has asked for rows."""
        if self.ledger is None:
            return None
        return replace(self.ledger.counts(), n_sample_kept=self.restored.n_kept)

    @property
    def has_rows(self) -> bool:
        """Whether a shard can be granted now, as far as is known."""
        if self.ledger is None or self.ledger.counts().todo > 0:
            return True
        return any(self.ledger.leases(owner) for owner in self.silent)

    @property
    def is_over(self) -> bool:
        """Whether no shard will be granted any more."""
        return self.ledger is not None and self.ledger.finished

    # parameters

    def rows(self) -> str:
        """Return the account of rows at this moment."""
        ledger = self._begun(0)
        self.restored = replace(self.restored, n_kept=ledger.counts().n_sample_done)
        return to_json(ledger.checkpoint()).decode()

    def restore(self, caller: Caller, rows: str, number: int, *, rendezvous: int) -> None:
        """Go back to the account of rows of loaded parameters, once for all processes of one start.

        A process counts its requests by `number`: those that are not newer than its last one have no effect.

        Raises
        ------
        InvalidValueError
            When another process of the same start loaded other parameters.
        WireError, CheckpointError
            When it is no account of this job's rows.
        """
        numbers = dict(self.restored.numbers)
        if number <= numbers.get(caller.owner, 0):
            return
        digest = hashlib.sha256(rows.encode()).hexdigest() if rows else ""
        by, act = dict(self.restored.by), f"{caller.program}#{number}"
        is_other = self.restored.rendezvous != rendezvous or by.get(caller.place, act) != act
        is_first = is_other or not by
        if not is_first and digest != self.restored.digest:
            raise InvalidValueError(
                "another process of this start loaded another checkpoint, or found none: load it in one "
                "process and send its parameters to the others, or keep it where all of them find it"
            )
        if is_first and rows:
            self._begun(0).restore(from_json(rows, LedgerCheckpoint))
        elif is_first and self.ledger is not None:
            self.ledger.restore()
        by = {caller.place: act} if is_first else by | {caller.place: act}
        n_kept = self.restored.n_kept
        if is_first:
            n_kept = 0 if self.ledger is None else self.ledger.counts().n_sample_done
        living = {each: numbers[each] for each in self._owners.values() if each in numbers}
        self.restored = RestoredRecord(
            rendezvous,
            tuple(sorted(by.items())),
            digest,
            n_kept,
            tuple(sorted({**living, caller.owner: number}.items())),
        )

    # parts

    def _begun(self, n_row: int) -> ShardLedger:
        if self.ledger is None:
            self.ledger = ShardLedger(_split(self._spec))
        n_known = self.ledger.split.n_sample
        if n_row not in {0, n_known}:
            raise InvalidValueError(
                f"the program counts {n_row} rows, the job has {n_known} in each of its "
                f"{self.ledger.split.n_epoch} passes; set external.n_sample to the rows of all passes"
            )
        return self.ledger

    def _note_end(self, lease: Held) -> None:
        self._ended[lease] = None
        if len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]


def _place(owner: str) -> str:
    return owner.rpartition("/")[0]


def _node(owner: str) -> str:
    return owner.partition("/")[0]


def _split(spec: JobSpec) -> Split:
    assert spec.foreign is not None
    n_sample, n_epoch = spec.foreign.n_sample, spec.n_epoch
    if n_sample % n_epoch:
        raise InvalidValueError(
            f"external.n_sample counts the rows of all {n_epoch} passes, so it must be a multiple of "
            f"{n_epoch}, got {n_sample}"
        )
    return Split(n_sample // n_epoch, spec.batch_size, spec.shard_batches, n_epoch, spec.seed)
