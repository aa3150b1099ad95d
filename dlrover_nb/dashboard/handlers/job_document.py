"""The Panel document of one job: the live view that a notebook has, with the commands of who looks at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.structs.decisions.commands import Action, Asker, Entry
from dlrover_nb.dashboard.frame.page_frame import error_html
from dlrover_nb.dashboard.handlers.documents import person_here
from dlrover_nb.widgets.live.live_view import LiveView
from dlrover_nb.widgets.theme import DARK_PAGE

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dlrover_nb.core.structs.decisions.people import Person
    from dlrover_nb.dashboard.common.team import Team
    from dlrover_nb.dashboard.sign_in import SignIn


def live_app(team: Team, sign_in: SignIn) -> Callable[[], Any]:  # noqa: ARG001 - documents know their person
    """Return the function that Panel calls for each new document."""

    def document() -> Any:  # noqa: ANN401 - panel has no types
        import panel as pn  # noqa: PLC0415 - seconds to import

        pn.config.raw_css = [*pn.config.raw_css, DARK_PAGE]  # of this document alone
        query = {
            name: values[-1].decode("utf-8", "replace") for name, values in pn.state.session_args.items()
        }
        key = query.get("cluster") or next(iter(team.clusters))
        try:
            person = person_here()
            job = team.job(key, query.get("job", ""), Asker(person, Entry.DASHBOARD))
            can_act = may_act(team, person, key, job.snapshot().spec.owner)
            return LiveView(job, team.cluster(key).poller, can_act=can_act, is_part=True).panel()
        except DlroverError as error:
            return pn.pane.HTML(str(error_html(error)))  # plain text: of `Markup`, Panel escapes its own &

    return document


def may_act(team: Team, person: Person, key: str, owner: str) -> bool:
    """Whether a person may send every command that the live view has controls for."""
    actions = (Action.ACCEPT, Action.REJECT, Action.OVERRIDE, Action.SCALE, Action.UNDO, Action.MODE)
    return all(team.may(person, action, key, owner=owner) for action in actions)
