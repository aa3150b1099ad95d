"""Verbs of the command line alone, for programs: the tokens of `/api/v1`, and the server for agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.api.views.job_views import Note, Shown
from dlrover_nb.core.basics.waits import until_ready
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.decisions.people import ANY, AccessRole
from dlrover_nb.magics.parser import number, one_of
from dlrover_nb.magics.verb import Verb, argument
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Paragraph, Table, View
from dlrover_nb.widgets.rows.tables import Columns, fields, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.dashboard.api_v1.tokens import Token, Tokens
    from dlrover_nb.magics.commands import Commands
    from dlrover_nb.widgets.rows.tables import Tables

_TOKENS: Columns[Token] = Columns(fields("id person role namespace expires_at_s"))
N_ID = 12  # letters of an id: enough to name a token
DAYS = 30.0


@dataclass(frozen=True, slots=True, repr=False)
class TokensView(Shown):
    """The tokens of the API, without their secrets, which are kept nowhere."""

    tokens: tuple[Token, ...]
    now_s: float

    def __iter__(self) -> Iterator[Token]:
        return iter(self.tokens)

    def view(self) -> View:
        """Return the content."""
        rows = tuple((t.id[:N_ID], t.person, str(t.role), t.namespace, self._ends(t)) for t in self.tokens)
        table = Table("Tokens", ("id", "of", "role", "namespace", "ends"), rows)
        return View("Tokens of /api/v1", (table, Paragraph("A token can never do more than its owner can.")))

    def tables(self) -> Tables:
        """Return it as data."""
        return listed("tokens", _TOKENS, self.tokens)

    def _ends(self, token: Token) -> str:
        over = " (over)" if token.expires_at_s <= self.now_s else ""
        return units.clock(token.expires_at_s) + over


def tokens(
    _: Commands, *, action: str, name: str | None, role: str, namespace: str, days: float
) -> Note | TokensView:
    """Make, list or end the tokens of the API."""
    from dlrover_nb.core.history.stores.credentials import CredentialStore  # noqa: PLC0415 - SQLAlchemy loads on demand
    from dlrover_nb.dashboard.api_v1.tokens import Limits, Tokens  # noqa: PLC0415 - as above

    store, now_s = CredentialStore(), SystemClock().now_s
    try:
        table = Tokens(store, now_s)
        if action == "list":
            return TokensView(table.all(name), now_s())
        if name is None:
            what = "the name of a person" if action == "add" else "the id of a token"
            raise InvalidValueError(
                f"server tokens {action} needs {what}, got none; `server tokens list` shows both"
            )
        if action == "remove":
            return _removed(table, name)
        secret = table.add(name, Limits(AccessRole(role), namespace), days)
    finally:
        store.close()
    return Note(f"A token of {name} as {role}, shown this once", secret)


def _removed(table: Tokens, name: str) -> Note:
    gone = table.remove(name)
    return Note(f"The token {gone.id[:N_ID]} of {gone.person} is no longer valid")


def mcp(commands: Commands) -> None:
    """Serve an agent over standard input and output, until it leaves."""
    from dlrover_nb.core.client.handle import user_name  # noqa: PLC0415 - loads on demand
    from dlrover_nb.core.commands.second_person import NO_RULES  # noqa: PLC0415 - as above
    from dlrover_nb.core.structs.decisions.people import local_person  # noqa: PLC0415 - as above
    from dlrover_nb.dashboard.agent_tools import AgentTools  # noqa: PLC0415 - as above

    try:
        from dlrover_nb.dashboard.mcp_server import server_of  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise InvalidValueError(
            f'mcp needs the extra dashboard, got none ({error}); pip install "dlrover-nb[dashboard]"'
        ) from error

    def connected() -> Cluster:
        return commands.cluster(start=False).core

    tools = AgentTools(connected, local_person(user_name()), SystemClock().now_s, url=None, rules=NO_RULES)
    try:
        with until_ready() as ready:
            ready()  # it serves: what an agent's question waits for is no wait of this call
            server_of(tools).run()
    finally:
        tools.close()


TOKENS = (
    argument(
        "action",
        metavar="ACTION",
        type=one_of("action", ("add", "list", "remove")),
        help="add, list or remove",
    ),
    argument("name", metavar="NAME", nargs="?", help="the person; of remove: the token's id"),
    argument(
        "--role",
        metavar="ROLE",
        type=one_of("role", AccessRole),
        default=str(AccessRole.VIEWER),
        help="the most that it may be: viewer, operator or admin",
    ),
    argument("--namespace", metavar="NAMESPACE", default=ANY, help="only there; * is everywhere"),
    argument("--days", type=number, metavar="N", default=DAYS, help="how long it is valid"),
)
VERBS = (
    Verb("tokens", "make, list or end tokens of /api/v1", tokens, TOKENS, "add ada --role viewer"),
    Verb("mcp", "serve an agent, which may read and propose", mcp, example="--cluster kubernetes"),
)
