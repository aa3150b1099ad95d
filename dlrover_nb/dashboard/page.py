"""What a page is, and what it is drawn from: one visit of one person, with the whole state in its address."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from markupsafe import Markup

    from dlrover_nb.core.structs.decisions.people import Person
    from dlrover_nb.dashboard.common.team import Team

MOST_REASON = 1000  # letters, in the form of a command


@dataclass(frozen=True, slots=True)
class Visit:
    """A person's request for a page.

    Parameters
    ----------
    person
        Who is signed in.
    team
        What the pages of this server share.
    query
        The parameters of the address: the page's state. One that is given several times has its last value.
    several
        The same, with all values.
    csrf
        The token that each form of the page must send back.
    root
        Path under which a proxy serves the dashboard: before every link; empty: none.
    can_leave
        Whether the person has signed in here, and so can sign out.
    """

    person: Person
    team: Team
    query: Mapping[str, str] = field(default_factory=dict)
    several: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    csrf: str = ""
    root: str = ""
    can_leave: bool = False

    @property
    def cluster(self) -> str:
        """Key of the cluster that the page is about: the one named, or the first."""
        return self.query.get("cluster") or next(iter(self.team.clusters))


@dataclass(frozen=True, slots=True)
class Page:
    """One page.

    Parameters
    ----------
    path
        Of the address, such as ``jobs``.
    title
        In the navigation, and in the heading where the content has none of its own.
    body
        Returns its content as HTML, which a template has written; plain text would be escaped. It may block,
        and runs on a thread of its own. A `DlroverError` is shown as one line.
    is_listed
        Whether the navigation has it.
    subject
        The parameter of the address that names what the page is about, for the browser's tab; empty: none.
    """

    path: str
    title: str
    body: Callable[[Visit], Markup]
    is_listed: bool = True
    subject: str = ""
