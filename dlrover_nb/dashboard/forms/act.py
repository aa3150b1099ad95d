"""Commands from forms: a form becomes a request, the job's handle carries it out, and its fate becomes words.

`request_of` is pure; `carried_out` asks the job and makes every refusal a sentence with
what to do; `forms.ActHandler` (``/do``) is the edge. A form holds what the person saw (the proposal's id, the
version of the plan) and a key that was made with it: sent twice, by a double click or a browser that asks
again, it is carried out once.

The answer is a redirect to the page that the form stood on, with the words kept for that page: so "load
again" sends nothing twice. Rejected: an answer by script, since a decision must also work from a phone whose
browser has scripts off, and from a link in a chat.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.commands.table import REQUESTS
from dlrover_nb.core.errors import (
    BackendError,
    DlroverError,
    InvalidValueError,
    NotAllowedError,
    NotWrittenError,
    SecondPersonError,
    StaleDecisionError,
)
from dlrover_nb.core.structs.decisions.commands import Action, Asker, Entry
from dlrover_nb.dashboard.forms.fields import action_fields, needed, values_of
from dlrover_nb.dashboard.forms.flash import Flash
from dlrover_nb.dashboard.page import MOST_REASON
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Tone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.commands.requests import Request
    from dlrover_nb.core.structs.decisions.decisions import Decision
    from dlrover_nb.core.structs.decisions.people import Person
    from dlrover_nb.dashboard.common.team import Team

    Form = Mapping[str, str]

MOST_KEY = 64  # letters: of the audit's column
_PAGE_NAME = re.compile(r"[a-z]{1,32}")


def request_of(form: Form) -> Request:
    """Return what a form asks for.

    Parameters
    ----------
    form
        Its fields: ``job``, ``action``, ``reason``, ``key``, and the fields of the action's request by their
        names, see `fields.values_of`.

    Raises
    ------
    InvalidValueError
        When a field is missing, or is not what its action needs.
    """
    kind, why = FORM_ACTIONS[action_of(form)], form.get("reason", "").strip()
    needed(form, "job")
    if len(form.get("key", "")) > MOST_KEY:
        raise InvalidValueError(
            f"key must have at most {MOST_KEY} letters, got {len(form['key'])}; load the page again"
        )
    if len(why) > MOST_REASON:
        raise InvalidValueError(
            f"reason must have at most {MOST_REASON:,} letters, got {len(why):,}; shorten it"
        )
    return kind(**values_of(form, kind), why=why)


def key_of(form: Form) -> str:
    """Return the idempotency key of a form: of its own key, and of all that it asks for.

    A browser that goes back shows the form again with the same key; with another plan in it, or another
    button, it asks for something else, which must not be taken for the first one. Empty: it has none.
    """
    if not form.get("key"):
        return ""
    text = "\n".join(f"{name}={form[name]}" for name in sorted(form) if name not in _NOT_ASKED)
    return f"form-{sha256(text.encode()).hexdigest()[:40]}"


_NOT_ASKED = {"csrf", "back", "reason"}
FORM_ACTIONS = {request.action: request for request in REQUESTS}


def action_of(form: Form) -> Action:
    """Return the action that a form asks for; `InvalidValueError` where forms have none of that name."""
    name = form.get("action", "")
    if name not in FORM_ACTIONS:
        names = ", ".join(FORM_ACTIONS)
        raise InvalidValueError(f"action must be one of {names}, got {shown(name)}; load the page again")
    return Action(name)


class Fate(StrEnum):
    """What became of a command, as a word."""

    DONE = "done"
    WAITS = "waits for a second person"
    NOT_ALLOWED = "not allowed"
    STALE = "stale"
    REFUSED = "refused"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of one command, and the sentence that tells it."""

    fate: Fate
    words: str

    @property
    def flash(self) -> Flash:
        """Return it as the line that the next page begins with."""
        tones = {Fate.DONE: Tone.NEWS, Fate.WAITS: Tone.HINT, Fate.UNKNOWN: Tone.FAILED}
        return Flash(tones.get(self.fate, Tone.WARNING), self.words)

    def flash_with(self, form: Form) -> Flash:
        """Return the flash, with what a form ordered where nothing was done: the page shows it again."""
        is_kept = self.fate in {Fate.REFUSED, Fate.STALE} and form.get("action") == Action.MITIGATE
        return replace(self.flash, form=action_fields(form)) if is_kept else self.flash


def carried_out(find: Callable[[], JobHandle], form: Form) -> Ended:
    """Carry out what a form asks for; every refusal is a fate, with what to do.

    Parameters
    ----------
    find
        Returns the job as the person who asks.
    form
        What `request_of` takes, and in ``run`` for which of the jobs of that name it was made.
    """
    handle: JobHandle | None = None
    words = f"{form.get('action', '')} {form.get('proposal', '')}".strip() or "the command"
    try:
        handle = find()
        request = request_of(form)
        command = request.command(form["job"])
        words = command.words
        made = handle.ask(request, version=form.get("version", ""), key=key_of(form), run=form.get("run", ""))
        words = words if made is None else made.words
    except DlroverError as error:
        return refused(error, words, form, handle)
    as_id = f" as {made.id}" if made is not None else ""
    return Ended(Fate.DONE, f"{_head(words)} of job {form['job']} is done{as_id}.")


def refused(error: DlroverError, words: str, form: Form, handle: JobHandle | None) -> Ended:
    """Return the fate that an error means, in words."""
    job, text = form.get("job", ""), str(error)
    match error:
        case SecondPersonError():
            return Ended(Fate.WAITS, f"{_sentence(text)} It stands under Proposals until then.")
        case NotAllowedError():
            return Ended(Fate.NOT_ALLOWED, f"Not allowed, and nothing was changed: {_sentence(text)}")
        case StaleDecisionError():
            who = _who_answered(handle, form)
            head = f"{_head(words)} of job {job} was not done, since the job has changed: "
            return Ended(
                Fate.STALE, f"{head}{who}{_sentence(text)} Look at the job as it is now, and decide again."
            )
        case NotWrittenError():
            return Ended(Fate.REFUSED, f"{_head(words)} of job {job} was not done: {_sentence(text)}")
        case BackendError():
            head = f"We do not know whether {words} of job {job} was done: {_sentence(text)}"
            return Ended(Fate.UNKNOWN, f"{head} Look at the job and its audit before you ask again.")
        case _:
            return Ended(Fate.REFUSED, f"{_head(words)} of job {job} was refused: {_sentence(text)}")


def _who_answered(handle: JobHandle | None, form: Form) -> str:
    """Say who has answered a form's proposal meanwhile, as a sentence; empty: none is known to have."""
    proposal = form.get("proposal", "")
    if handle is None or not proposal:
        return ""
    try:
        snapshot = handle.snapshot()
    except DlroverError:
        return ""
    is_other = form.get("run", "") not in {"", snapshot.run}  # a job whose proposals are others too
    return "" if is_other else answered_words(snapshot.decisions, proposal)


def answered_words(decisions: tuple[Decision, ...], proposal: str) -> str:
    """Return who answered a proposal, how and when, as a sentence; empty: no person did."""
    answers = [each for each in decisions if each.proposal == proposal]
    if not answers:
        return ""
    last = answers[-1]
    why = f" ({last.why})" if last.why else ""
    return f"{last.by} answered {proposal} at {units.clock(last.at_s)} with {last.id}, {last.words}{why}. "


def _head(words: str) -> str:
    return words[:1].upper() + words[1:]


def _sentence(text: str) -> str:
    """Return an error as sentences on one line."""
    line = " ".join(text.split())
    return line if line.endswith((".", "!", "?")) else f"{line}."


def act(team: Team, person: Person, form: Form, entry: Entry = Entry.DASHBOARD) -> Ended:
    """Carry out what a form asks for in the name of a person; blocks, so on a thread."""
    asker = Asker(person, entry)
    return carried_out(lambda: team.job(form.get("cluster", ""), form.get("job", ""), asker), form)


def back_to(form: Form, flash: str) -> str:
    """Return the address of the page that the form stood on, relative, so under any proxy's prefix.

    A page is one word of lower-case letters: no form can lead to another host.
    """
    page = form.get("back", "job")
    page = page if _PAGE_NAME.fullmatch(page) else "job"
    state = {"cluster": form.get("cluster", "")} | ({"name": form.get("job", "")} if page == "job" else {})
    return f"{page}?{urlencode({**state, 'flash': flash})}"
