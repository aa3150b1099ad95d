"""The handlers of forms: each reads its fields, calls a function on a thread, and leads to a page.

They are thin, and apart from the functions, since pages use those too and a handler draws pages.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from tornado.web import HTTPError

from dlrover_nb.core.errors import BackendError, DlroverError
from dlrover_nb.core.history.stores.notes import Note
from dlrover_nb.dashboard.alerts.muted import mute
from dlrover_nb.dashboard.forms.act import act, back_to
from dlrover_nb.dashboard.forms.flash import Flash, keep_flash
from dlrover_nb.dashboard.forms.proposal_batch import answered
from dlrover_nb.dashboard.forms.second import closed
from dlrover_nb.dashboard.frame.base_handler import PersonHandler
from dlrover_nb.dashboard.frame.page_frame import plain_html
from dlrover_nb.dashboard.job_parts import drift
from dlrover_nb.dashboard.job_parts.drift import file_text
from dlrover_nb.dashboard.jobs_board.filters import wanted_from
from dlrover_nb.dashboard.rendering import render
from dlrover_nb.dashboard.saved_views import changed_views
from dlrover_nb.widgets.blocks import Tone

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from markupsafe import Markup

    from dlrover_nb.dashboard.common.team import Team
    from dlrover_nb.dashboard.sign_in import SignIn


class MuteHandler(PersonHandler):
    """Mutes a job, and leads back to the alerts."""

    async def post(self) -> None:
        """Keep until when."""
        cluster, job, hours = (self.get_body_argument(name, "") for name in ("cluster", "job", "hours"))
        notes, person, at_s = self.team.notes, self.person.name, self.team.now_s()
        try:
            await asyncio.get_running_loop().run_in_executor(
                None, lambda: mute(notes, person, cluster, job, hours=hours, at_s=at_s)
            )
        except DlroverError as error:
            raise HTTPError(422, "%s", error) from error
        self.redirect(f"{self.root}/alerts", status=303)


def alert_patterns(team: Team, sign_in: SignIn) -> list[tuple[str, Any, dict[str, Any]]]:
    """Return the handlers of alerts beside their page, as the server takes them."""
    return [("/alerts/mute", MuteHandler, {"team": team, "sign_in": sign_in})]


class FormHandler(PersonHandler):
    """A handler of one form; `address` returns where it leads."""

    _untold: tuple[Flash, ...] = ()

    async def post(self) -> None:
        """Do what the form asks for, and lead to the page that tells what became of it."""
        form = {name: self.get_body_argument(name) for name in self.request.body_arguments}
        address = await asyncio.get_running_loop().run_in_executor(None, self.address, form)
        if self._untold:
            self.write(_told_html(self._untold, address, root=self.root))
        else:
            self.redirect(address, status=303)

    def address(self, form: dict[str, str]) -> str:
        """Do what the form asks for; return the address of the next page. It runs on a thread."""
        raise NotImplementedError

    def flash(self, lines: Sequence[Flash]) -> str:
        """Keep lines for the next page; return their token. The answer tells what cannot be kept."""
        try:
            return keep_flash(self.team.notes, self.person.name, lines, self.team.now_s())
        except BackendError:
            self._untold = tuple(lines)
            return ""


def _told_html(lines: Sequence[Flash], address: str, *, root: str) -> Markup:
    """Return a page that tells lines, and leads on."""
    body = render("told.html", lines=[line.block for line in lines], address=address)
    return plain_html("What became of it", body, root=root)


class ActHandler(FormHandler):
    """Takes the form of one command."""

    def address(self, form: dict[str, str]) -> str:
        """Carry it out."""
        return back_to(form, self.flash((act(self.team, self.person, form).flash_with(form),)))


class BatchHandler(FormHandler):
    """Takes the answer to many proposals; the page then tells of each what became of it."""

    def address(self, form: dict[str, str]) -> str:
        """Answer each by itself."""
        fields = {name: self.get_body_arguments(name) for name in self.request.body_arguments}
        try:
            lines = [ended.flash for ended in answered(self.team, self.person, fields)]
        except DlroverError as error:
            lines = [Flash(Tone.WARNING, f"Nothing was sent: {error}")]
        return back_to(form | {"back": "proposals"}, self.flash(lines))


class SecondHandler(FormHandler):
    """Takes the word of a second person on a request."""

    def address(self, form: dict[str, str]) -> str:
        """Approve or refuse it."""
        return back_to(
            form | {"back": "proposals"}, self.flash((closed(self.team, self.person, form).flash,))
        )


class FileHandler(FormHandler):
    """Takes an exported file that a job is compared with; it is the person's own."""

    def address(self, form: dict[str, str]) -> str:
        """Keep the file, and lead back to the job."""
        files = self.request.files.get("file", [])
        try:
            line = Flash(Tone.NEWS, self._kept(form, files[0]["body"] if files else b""))
        except DlroverError as error:
            line = Flash(Tone.WARNING, f"The file was not accepted: {error}")
        return back_to(form | {"back": "job"}, self.flash((line,)))

    def _kept(self, form: dict[str, str], content: bytes) -> str:
        text = file_text(content)
        name = f"{form.get('job', '')} {form.get('cluster', '')}"
        self.team.notes.keep(Note(self.person.name, drift.KIND, name, self.team.now_s(), text))
        return "The file is compared with the job, under Drift."


class ViewsHandler(FormHandler):
    """Takes the form of a saved view."""

    def address(self, form: dict[str, str]) -> str:
        """Save or drop it, and lead back to the list as it was shown."""
        try:
            words = changed_views(self.team.notes, self.person.name, form, self.team.now_s())
            line = Flash(Tone.NEWS, words)
        except DlroverError as error:
            line = Flash(Tone.WARNING, f"Not saved: {error}.")
        state = wanted_from(form.get("view", "")).query
        back = {"cluster": form.get("cluster", ""), **state, "flash": self.flash((line,))}
        return f"jobs?{urlencode(back)}"
