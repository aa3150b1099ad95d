"""The part of a job's page about stragglers: slow nodes, errors, the action that waits, forms to order one.

Its forms hold what a person can choose without a calculation: a node to restart, a parameter server to
relieve, how many workers a round may go on without. Batch sizes and learning rates are sets of numbers that
must agree with each other; a solution proposes them, and the verb `mitigate` takes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.commands import Action
from dlrover_nb.core.structs.job import Sync
from dlrover_nb.core.structs.resources import Role
from dlrover_nb.core.structs.snapshot import NodePhase
from dlrover_nb.dashboard.form_html import act_form, button, reason_field, seen_fields
from dlrover_nb.widgets import mitigations
from dlrover_nb.widgets.blocks import Facts, Heading, block_html, escape

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.snapshot import JobSnapshot
    from dlrover_nb.dashboard.page import Visit
    from dlrover_nb.widgets.blocks import Block

    May = Callable[[Action], bool]


def stragglers_html(visit: Visit, snapshot: JobSnapshot, may: May) -> str:
    """Return the part; empty where no node is slow or had errors, and no action was proposed or can be."""
    blocks: list[Block] = [*mitigations.slow_blocks(snapshot), *mitigations.error_blocks(snapshot)]
    opened = None if snapshot.phase.is_final else snapshot.open_mitigation
    if opened is not None:
        blocks += [Heading(mitigations.head_words(opened)), Facts(mitigations.facts(opened))]
    shown = _html(blocks) + _answer_html(visit, snapshot, may)
    if (closed := mitigations.closed_table(snapshot.mitigations, snapshot.decisions)) is not None:
        shown += _html([closed])
    return shown + _order_html(visit, snapshot, may)


def _html(blocks: list[Block]) -> str:
    return "".join(block_html(block, level=3) for block in blocks)


def _answer_html(visit: Visit, snapshot: JobSnapshot, may: May) -> str:
    opened = snapshot.open_mitigation
    if opened is None:
        return ""
    buttons = "".join(
        button(str(action), f"{str(action).capitalize()} {opened.id}")
        for action in (Action.ACCEPT, Action.REJECT)
        if may(action)
    )
    if not buttons:
        return ""
    row = f'<div class="form-row">{reason_field()}{buttons}</div>'
    fields = seen_fields(visit, snapshot, proposal=opened.id)
    return act_form(f"Answer {opened.id}", fields, row, root=visit.root)


def _order_html(visit: Visit, snapshot: JobSnapshot, may: May) -> str:
    """Return the forms that order an action which nobody proposed; a job of other programs can do none."""
    if not may(Action.MITIGATE) or snapshot.spec.foreign is not None:
        return ""
    there = [node for node in snapshot.nodes if node.phase is not NodePhase.GONE]
    servers = [node.id for node in there if node.role is Role.PS]
    nodes = [node.id for node in there]
    forms = _choice_form(visit, snapshot, "restart", ("Node", "Restart this node"), nodes)
    if len(servers) > 1:
        words = ("Parameter server", "Move parameters away")
        forms += _choice_form(visit, snapshot, "move", words, servers)
    if snapshot.spec.sync is Sync.BSP:
        field = (
            '<label>Workers that a round may go on without <input type="number" name="backup" value="1" '
            'min="0" step="1" required></label>'
        )
        forms += _form(visit, snapshot, "Backup workers", field, "Set backup workers")
    return f"<details><summary>Order an action yourself</summary>{forms}</details>" if forms else ""


def _choice_form(
    visit: Visit, snapshot: JobSnapshot, name: str, words: tuple[str, str], nodes: list[str]
) -> str:
    """Return a form with a choice of nodes; `words` label the choice and its button."""
    if not nodes:
        return ""
    options = "".join(f"<option>{escape(node)}</option>" for node in nodes)
    label, press = words
    field = f'<label>{escape(label)} <select name="{name}">{options}</select></label>'
    return _form(visit, snapshot, press, field, press)


def _form(visit: Visit, snapshot: JobSnapshot, label: str, field: str, press: str) -> str:
    row = f'<div class="form-row">{field}{reason_field()}{button(str(Action.MITIGATE), press)}</div>'
    return act_form(label, seen_fields(visit, snapshot), row, root=visit.root)
