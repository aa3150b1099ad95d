"""How a job goes on whose write-ahead log is damaged: from its newest whole checkpoint, with new nodes.

Behind the damage nodes were granted rows that no file names any more, and parameters have learnt them. So
neither the living nodes nor the log's account of rows can be used: all nodes are ended, and parameters and
account go back together to one moment, that of a checkpoint, whose manifest holds both. Each row is exact
from there. To keep the parameter servers and to guess what their rows are was rejected: then no count is.

What does not depend on rows (the plan, a request to stop, names that were given) is taken from the newest
whole state in the log, also from one behind the damage.

Without a whole checkpoint there is nothing to go back to, and the job is refused: its user decides whether to
train all rows anew. Only where the log ends too early, of a job that had no checkpoint yet, that is the one
thing left: a power failure in its first minutes leaves such a log, and takes the nodes with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.master.own.recovery_record import StateRecord, name_of
from dlrover_nb.core.master.own.state.state import ORIGIN, RestorableCheckpoint, Stage
from dlrover_nb.core.master.own.write_ahead_log import read_back
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from dlrover_nb.core.master.own.master import JobMaster
    from dlrover_nb.core.master.own.write_ahead_log import Entry
    from dlrover_nb.core.sharding.manifest import Manifest
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


@dataclass(frozen=True, slots=True)
class Remains:
    """What is left of a job whose log is damaged.

    Parameters
    ----------
    entries, after
        Whole entries before and behind the damage.
    has_hole
        Whether something of the log is damaged; False: it only ends too early.
    checkpoints
        The manifests of complete checkpoints, oldest first.
    n_checkpoint
        The highest number of a checkpoint, complete or not.
    nodes
        Names that were given to nodes, as far as files tell.
    """

    entries: Sequence[Entry]
    after: Sequence[Entry]
    has_hole: bool
    checkpoints: Sequence[Manifest]
    n_checkpoint: int
    nodes: Collection[str]


@dataclass(frozen=True, slots=True)
class WayBack:
    """The arguments of `JobMaster.resume`, and what is lost, for people."""

    record: StateRecord
    checkpoints: tuple[RestorableCheckpoint, ...]
    words: str


def go_back(master: JobMaster, spec: JobSpec, remains: Remains) -> WayBack | None:
    """Set the ledgers of a new master to those of the newest checkpoint; None: there is none to load."""
    whole = (*remains.entries, *remains.after)
    states = [entry.state for entry in whole if entry.state is not None]
    state = states[-1] if states else master.record
    _restore_decisions(master, remains.entries)
    origin = _origin(whole)
    own = tuple(_of_this_job(master, remains.checkpoints))
    is_lost = remains.has_hole or not states or any(map(_had_checkpoint, states))
    if not own and (is_lost or (origin is None and spec.start_from is not None)):
        return None
    checkpoints = (*([origin] if origin else []), *own)
    source = checkpoints[-1] if checkpoints else None
    train, evaluate = master.ledgers
    train.restore(None if source is None else source.manifest.ledger)
    evaluate.restore(None)
    if state.stopped_early:  # it may have been decided after that checkpoint
        train.close()
    counts = train.counts()
    words = (
        f"the job went back to {_name(source)}, with {counts.n_sample_done:,} of {counts.n_sample_total:,} "
        "rows, and its nodes were replaced; what was trained since is trained again, and each row counts once"
    )
    return WayBack(_record(state, states, checkpoints, remains), checkpoints, words)


def _had_checkpoint(state: StateRecord) -> bool:
    """Whether a checkpoint of its own was on the disk; an ended job has nothing to go back to either."""
    is_there = any(is_on_disk and number != ORIGIN for number, is_on_disk in state.checkpoints)
    return is_there or state.stage is Stage.ENDED


def _name(source: RestorableCheckpoint | None) -> str:
    if source is None:
        return "its beginning"
    return "the checkpoint that it began from" if source.is_origin else f"checkpoint {source.number}"


def _restore_decisions(master: JobMaster, entries: Sequence[Entry]) -> None:
    """Set the ledgers as before the damage: going back keeps which rows their user had skipped."""
    untouched = master.ledgers
    try:
        read_back(master, entries)
    except CheckpointError:  # the damage is in the first entry, or in a log without numbers
        master.ledgers = untouched


def _origin(entries: Iterable[Entry]) -> RestorableCheckpoint | None:
    """Return the checkpoint that the job began from."""
    return next((checkpoint for entry in entries for checkpoint in entry.kept if checkpoint.is_origin), None)


def _of_this_job(master: JobMaster, manifests: Iterable[Manifest]) -> Iterable[RestorableCheckpoint]:
    """Yield the checkpoints whose account is of this job's rows."""
    split = master.ledgers[0].split
    for manifest in manifests:
        try:
            split.merged(manifest.ledger.split)
        except CheckpointError:
            continue
        yield RestorableCheckpoint(manifest, (None,) * len(manifest.files), is_on_disk=True)


def _record(
    state: StateRecord,
    states: Sequence[StateRecord],
    checkpoints: Sequence[RestorableCheckpoint],
    remains: Remains,
) -> StateRecord:
    """Return a state without nodes, that loads the last checkpoint of `checkpoints`."""
    own = [each.number for each in checkpoints if not each.is_origin]
    epochs = [each.manifest.ps_epoch for each in checkpoints if not each.is_origin]
    record = replace(
        state,
        group=None,
        n_group=max([each.n_group for each in states] + epochs, default=0),
        move=None,
        source=name_of(checkpoints[-1]) if checkpoints else None,
        checkpoints=tuple(map(name_of, checkpoints)),
        writing=(),
        n_checkpoint=max([state.n_checkpoint, remains.n_checkpoint, *own]),
        nodes=(),
        n_named=_n_named(state.target, states, remains.nodes),
        batch_sizes={},
        batch_times={},
        rates={},
        fences=(),
        mitigations=(),
        change=None if state.change is None else replace(state.change, to_replace=()),
    )
    if state.stage is Stage.ENDED:
        return record
    # Where all rows were trained, a final checkpoint is written again, and the evaluation follows it.
    return replace(record, stage=Stage.ASSEMBLING, is_settled=False, is_evaluating=False, evaluation=None)


def _n_named(
    target: ResourcePlan, states: Iterable[StateRecord], nodes: Iterable[str]
) -> tuple[tuple[Role, int], ...]:
    """Return how many names were given at most: a damaged entry may have named all nodes of a plan."""
    n_named = dict.fromkeys(Role, 0)
    for role, n in (pair for state in states for pair in state.n_named):
        n_named[role] = max(n_named[role], n)
    for node in nodes:
        role_name, _, number = node.rpartition("-")
        if role_name in set(Role) and number.isdecimal():
            n_named[Role(role_name)] = max(n_named[Role(role_name)], int(number) + 1)
    return tuple((role, n + target.role(role).count) for role, n in n_named.items())
