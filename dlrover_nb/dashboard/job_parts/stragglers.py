"""The part of a job's page about stragglers: slow nodes, errors, the action that waits, and forms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.dashboard.forms.markup import answer_form
from dlrover_nb.dashboard.job_parts.orders import orders_html
from dlrover_nb.dashboard.rendering import render
from dlrover_nb.widgets import mitigations
from dlrover_nb.widgets.blocks import Facts, Heading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.dashboard.forms.flash import Flash
    from dlrover_nb.dashboard.forms.markup import ActForm, May
    from dlrover_nb.dashboard.page import Visit
    from dlrover_nb.widgets.blocks import Block


def stragglers_html(visit: Visit, snapshot: JobSnapshot, may: May, news: Sequence[Flash] = ()) -> Markup:
    """Return the part; empty where no node is slow or had errors, and no action was proposed or can be.

    Of the `news` of the page, a form that was refused is shown as it was filled in.
    """
    blocks: list[Block] = [*mitigations.slow_blocks(snapshot), *mitigations.error_blocks(snapshot)]
    action = snapshot.open_mitigation
    if action is not None and not snapshot.phase.is_final:
        blocks += [Heading(mitigations.head_words(action)), Facts(mitigations.facts(action))]
    return render(
        "stragglers.html",
        root=visit.root,
        blocks=blocks,
        answer=None if action is None else _answer(visit, snapshot, action.id, may),
        closed=mitigations.closed_table(snapshot.mitigations, snapshot.decisions),
        orders=orders_html(visit, snapshot, news) if may(Action.MITIGATE) else None,
    )


def _answer(visit: Visit, snapshot: JobSnapshot, name: str, may: May) -> ActForm | None:
    return answer_form(visit, snapshot, name, may, (f"Accept {name}", f"Reject {name}"))
