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

from dlrover_nb.core.commands.fields import MOST_BATCH, MOST_FACTOR
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import CPU_STEP, Role
from dlrover_nb.core.structs.views.snapshot import NodePhase
from dlrover_nb.dashboard.forms.fields import BATCHES, RATES
from dlrover_nb.dashboard.forms.markup import act_form, button, reason_field, seen_fields
from dlrover_nb.widgets.blocks import Paragraph, Tone, block_html, escape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, NodeView
    from dlrover_nb.dashboard.forms.flash import Flash
    from dlrover_nb.dashboard.page import Visit

MOST_FIELDS = 200  # workers that a form has fields for; of more, the verb takes their numbers
_KEEPS = "as it is"


@dataclass(frozen=True, slots=True)
class _Sheet:
    """What all forms are made of; `values` is what a refused form had, and `why` it was refused."""

    visit: Visit
    snapshot: JobSnapshot
    values: dict[str, str]
    why: str

    def form(self, field: str, label: str, content: str, press: str) -> str:
        """Return a form that has a field of that name, or fields that begin with it."""
        is_refused = any(name.startswith(field) for name in self.values)
        why = block_html(Paragraph(self.why, Tone.WARNING)) if is_refused else ""
        reason = reason_field(self.values.get("reason", "") if is_refused else "")
        row = f'{why}<div class="form-row">{content}{reason}{button(str(Action.MITIGATE), press)}</div>'
        return act_form(label, seen_fields(self.visit, self.snapshot), row, root=self.visit.root)

    def choice(self, field: str, label: str, nodes: Sequence[NodeView], *, with_size: bool = False) -> str:
        """Return a choice of nodes."""
        options = "".join(
            f'<option value="{escape(node.id)}"{" selected" * (self.values.get(field) == node.id)}>'
            f"{escape(node.id)}{escape(_size_words(node)) if with_size else ''}</option>"
            for node in nodes
        )
        return f'<label>{escape(label)} <select name="{field}">{options}</select></label>'

    def number(self, field: str, label: str, limits: str, otherwise: str = "") -> str:
        """Return a field for a number; `limits` are its further attributes."""
        value = escape(self.values.get(field, otherwise))
        return (
            f'<label>{escape(label)} <input type="number" name="{escape(field)}" value="{value}" '
            f"{limits}></label>"
        )


def orders_html(visit: Visit, snapshot: JobSnapshot, news: Sequence[Flash] = ()) -> str:
    """Return the forms, folded but where one was refused; a job of other programs can do nothing of it."""
    there = [node for node in snapshot.nodes if node.phase is not NodePhase.GONE]
    if snapshot.spec.foreign is not None or not there:
        return ""
    refused = next((line for line in news if line.form), None)
    values = dict(refused.form) if refused is not None else {}
    sheet = _Sheet(visit, snapshot, values, refused.words if refused is not None else "")
    forms = _of_one_node(sheet, there) + _of_rounds(sheet) + _of_workers(sheet, there)
    is_open = " open" if values else ""
    return f"<details{is_open}><summary>Order an action yourself</summary>{forms}</details>"


def _of_one_node(sheet: _Sheet, there: Sequence[NodeView]) -> str:
    press = "Restart this node"
    forms = sheet.form("restart", press, sheet.choice("restart", "Node", there), press)
    servers = [node for node in there if node.role is Role.PS]
    if len(servers) > 1:
        press = "Move parameters away"
        forms += sheet.form("move", press, sheet.choice("move", "Parameter server", servers), press)
    fields = (
        sheet.choice("size", "Node", there, with_size=True)
        + sheet.number("cores", "Cores", f'min="{CPU_STEP}" step="{CPU_STEP}" placeholder="{_KEEPS}"')
        + sheet.number("memory", "MiB", f'min="64" step="1" placeholder="{_KEEPS}"')
    )
    return forms + sheet.form("size", "Size of one node", fields, "Set its size")


def _size_words(node: NodeView) -> str:
    return f" ({node.cpu:g} cores, {node.memory_mib:,} MiB)"


def _of_rounds(sheet: _Sheet) -> str:
    if sheet.snapshot.spec.sync is not Sync.BSP:
        return ""
    label = "Workers that a round may go on without"
    field = sheet.number("backup", label, 'min="0" step="1" required', "1")
    return sheet.form("backup", "Backup workers", field, "Set backup workers")


def _of_workers(sheet: _Sheet, there: Sequence[NodeView]) -> str:
    """Return the forms with a field for each worker that trains."""
    workers = [n.id for n in there if n.role is Role.WORKER and n.phase is NodePhase.READY]
    spec = sheet.snapshot.spec
    if not workers:
        return ""
    if len(workers) > MOST_FIELDS:
        line = f"%dlrover mitigate {spec.name} --batches WORKER=N,..."
        words = f"Batch sizes and learning rates of more than {MOST_FIELDS} workers are set by the verb:"
        return block_html(Paragraph(words, Tone.HINT, (line,)))
    size, limits = spec.batch_of(len(workers)), f'min="1" max="{MOST_BATCH}" step="1" required'
    words = f"Samples per mini-batch of each worker: {size:,} unless set; together they are the global batch"
    forms = _many(sheet, BATCHES, (words, "Batch sizes", "Set batch sizes"), workers, limits)
    if spec.sync is not Sync.BSP:
        limits = f'min="0" max="{MOST_FACTOR:g}" step="any" placeholder="{_KEEPS}"'
        words = "Factor on the learning rate of each worker"
        forms += _many(sheet, RATES, (words, "Learning rates", "Set learning rates"), workers, limits)
    return forms


def _many(
    sheet: _Sheet, before: str, words: tuple[str, str, str], workers: Sequence[str], limits: str
) -> str:
    """Return a form with a field for each worker; `words` are its legend, its label and its button."""
    legend, label, press = words
    fields = "".join(sheet.number(before + worker, worker, limits) for worker in workers)
    grid = f'<fieldset><legend>{escape(legend)}</legend><div class="job-sizes">{fields}</div></fieldset>'
    return sheet.form(before, label, grid, press)
