"""The part of a job's page about stragglers: slow nodes, errors, the action that waits, and forms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.dashboard.forms.markup import act_form, button, reason_field, seen_fields
from dlrover_nb.dashboard.job_parts.orders import orders_html
from dlrover_nb.widgets import mitigations
from dlrover_nb.widgets.blocks import Facts, Heading, block_html

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.dashboard.forms.flash import Flash
    from dlrover_nb.dashboard.page import Visit
    from dlrover_nb.widgets.blocks import Block

    May = Callable[[Action], bool]


def stragglers_html(visit: Visit, snapshot: JobSnapshot, may: May, news: Sequence[Flash] = ()) -> str:
    """Return the part; empty where no node is slow or had errors, and no action was proposed or can be.

    Of the `news` of the page, a form that was refused is shown as it was filled in.
    """
    blocks: list[Block] = [*mitigations.slow_blocks(snapshot), *mitigations.error_blocks(snapshot)]
    opened = None if snapshot.phase.is_final else snapshot.open_mitigation
    if opened is not None:
        blocks += [Heading(mitigations.head_words(opened)), Facts(mitigations.facts(opened))]
    shown = _html(blocks) + _answer_html(visit, snapshot, may)
    if (closed := mitigations.closed_table(snapshot.mitigations, snapshot.decisions)) is not None:
        shown += _html([closed])
    return shown + (orders_html(visit, snapshot, news) if may(Action.MITIGATE) else "")


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
