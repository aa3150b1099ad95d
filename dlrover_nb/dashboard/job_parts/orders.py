"""Forms that order an action against stragglers that was not proposed, each where the job can do it.

A choice among nodes has its form, and so have numbers: the size of one node, a batch size or a factor on
the learning rate for each worker. Those are not filled in, since a job does not tell which of them are in
effect, and a form that guesses would set them back. Rejected: one line of text as the verb `mitigate` takes
it. A user should not have to know how it is written, and a label says which worker a number is of.

A form that was refused comes back as it was filled in, with why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.commands.fields import MOST_BATCH, MOST_FACTOR, MOST_TIMES
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import CPU_STEP, Role
from dlrover_nb.core.structs.views.snapshot import NodePhase
from dlrover_nb.dashboard.forms.fields import ACCUMULATE, BATCHES, RATES
from dlrover_nb.dashboard.forms.markup import ActForm, seen_fields
from dlrover_nb.dashboard.rendering import render
from dlrover_nb.widgets.blocks import Paragraph, Tone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, NodeView
    from dlrover_nb.dashboard.forms.flash import Flash
    from dlrover_nb.dashboard.page import Visit

MOST_FIELDS = 200  # workers that a form has fields for; of more, the verb takes their numbers
_KEEPS = "as it is"


@dataclass(frozen=True, slots=True)
class _Choice:
    """A choice among nodes; `options` are their ids, each with its words."""

    name: str
    label: str
    options: tuple[tuple[str, str], ...]
    chosen: str


@dataclass(frozen=True, slots=True)
class _Number:
    """A field for a number; `limits` are its further attributes."""

    name: str
    label: str
    value: str
    limits: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Group:
    """Fields of a form, with a legend above them or without one."""

    fields: tuple[_Choice | _Number, ...]
    legend: str = ""


@dataclass(frozen=True, slots=True)
class _Order:
    """One form; `why` says why it was refused."""

    form: ActForm
    groups: tuple[_Group, ...]
    reason: str
    why: Paragraph | None


@dataclass(frozen=True, slots=True)
class _Sheet:
    """What all forms are made of; `values` is what a refused form had, and `why` it was refused."""

    visit: Visit
    snapshot: JobSnapshot
    values: dict[str, str]
    why: str

    def order(self, begin: str, label: str, press: str, *groups: _Group) -> _Order:
        """Return a form whose fields begin with `begin`."""
        is_refused = any(name.startswith(begin) for name in self.values)
        form = ActForm(label, seen_fields(self.visit, self.snapshot), ((str(Action.MITIGATE), press),))
        why = Paragraph(self.why, Tone.WARNING) if is_refused else None
        return _Order(form, groups, self.values.get("reason", "") if is_refused else "", why)

    def choice(self, name: str, label: str, nodes: Sequence[NodeView], *, with_size: bool = False) -> _Choice:
        """Return a choice of nodes."""
        options = tuple((node.id, f"{node.id}{_size_words(node) if with_size else ''}") for node in nodes)
        return _Choice(name, label, options, self.values.get(name, ""))

    def number(self, name: str, label: str, limits: Mapping[str, str], otherwise: str = "") -> _Number:
        """Return a field for a number."""
        return _Number(name, label, self.values.get(name, otherwise), limits)


def orders_html(visit: Visit, snapshot: JobSnapshot, news: Sequence[Flash] = ()) -> Markup | None:
    """Return the forms, folded but where one was refused; None: nothing can be ordered of this job."""
    there = [node for node in snapshot.nodes if node.phase is not NodePhase.GONE]
    if snapshot.spec.foreign is not None or not there:
        return None
    refused = next((line for line in news if line.form), None)
    values = dict(refused.form) if refused is not None else {}
    sheet = _Sheet(visit, snapshot, values, refused.words if refused is not None else "")
    workers = [node.id for node in there if node.role is Role.WORKER and node.phase is NodePhase.READY]
    is_many = len(workers) > MOST_FIELDS
    return render(
        "orders.html",
        root=visit.root,
        is_open=bool(values),
        forms=_of_one_node(sheet, there)
        + _of_rounds(sheet)
        + (() if is_many else _of_workers(sheet, workers)),
        hints=[_verb_hint(snapshot.spec.name)] if is_many else [],
    )


def _of_one_node(sheet: _Sheet, there: Sequence[NodeView]) -> tuple[_Order, ...]:
    servers = [node for node in there if node.role is Role.PS]
    restart, move = "Restart this node", "Move parameters away"
    cores = {"min": f"{CPU_STEP}", "step": f"{CPU_STEP}", "placeholder": _KEEPS}
    size = (
        sheet.choice("size", "Node", there, with_size=True),
        sheet.number("cores", "Cores", cores),
        sheet.number("memory", "MiB", {"min": "64", "step": "1", "placeholder": _KEEPS}),
    )
    moved = _Group((sheet.choice("move", "Parameter server", servers),))
    moves = (sheet.order("move", move, move, moved),)
    return (
        sheet.order("restart", restart, restart, _Group((sheet.choice("restart", "Node", there),))),
        *(moves if len(servers) > 1 else ()),
        sheet.order("size", "Size of one node", "Set its size", _Group(size)),
    )


def _size_words(node: NodeView) -> str:
    return f" ({node.cpu:g} cores, {node.memory_mib:,} MiB)"


def _of_rounds(sheet: _Sheet) -> tuple[_Order, ...]:
    if sheet.snapshot.spec.sync is not Sync.BSP:
        return ()
    limits = {"min": "0", "step": "1", "required": ""}
    field = sheet.number("backup", "Workers that a step may go on without", limits, "1")
    return (sheet.order("backup", "Backup workers", "Set backup workers", _Group((field,))),)


def _verb_hint(name: str) -> Paragraph:
    line = f"%dlrover apply {name} --batches WORKER=N,..."
    words = f"Batch sizes and learning rates of more than {MOST_FIELDS} workers are set by the verb:"
    return Paragraph(words, Tone.HINT, (line,))


def _of_workers(sheet: _Sheet, workers: Sequence[str]) -> tuple[_Order, ...]:
    """Return the forms with a field for each worker that trains."""
    spec = sheet.snapshot.spec
    if not workers:
        return ()
    batches = sheet.order(BATCHES, "Batch sizes", "Set batch sizes", *_batch_groups(sheet, workers))
    if spec.sync is Sync.BSP:
        return (batches,)
    limits = {"min": "0", "max": f"{MOST_FACTOR:g}", "step": "any", "placeholder": _KEEPS}
    words = "Factor on the learning rate of each worker"
    rates = _Group(tuple(sheet.number(RATES + worker, worker, limits) for worker in workers), words)
    return (batches, sheet.order(RATES, "Learning rates", "Set learning rates", rates))


def _batch_groups(sheet: _Sheet, workers: Sequence[str]) -> tuple[_Group, _Group]:
    """Return the size of each worker's mini-batch, and how many of them make one update."""
    size = sheet.snapshot.spec.batch_of(len(workers))
    words = f"Samples per mini-batch of each worker: {size:,} unless set"
    if sheet.snapshot.spec.sync is not Sync.GBA:
        words += "; together they are the global batch"
    limits = {"min": "1", "max": f"{MOST_BATCH}", "step": "1", "required": ""}
    sizes = tuple(sheet.number(BATCHES + worker, worker, limits) for worker in workers)
    limits = {"min": "1", "max": f"{MOST_TIMES}", "step": "1", "placeholder": "1"}
    times = tuple(sheet.number(ACCUMULATE + worker, worker, limits) for worker in workers)
    return _Group(sizes, words), _Group(times, "How many mini-batches each worker computes for one update")
