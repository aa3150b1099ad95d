"""`dlrover-nb show --live`: a job redrawn in the terminal until it ends, and steered by keys.

A key acts on what the screen shows: `a` accepts the proposal that was drawn last, by its id, so a newer one
that has come in the meantime is not accepted unseen (the master refuses the stale id, and the line below says
so). An action against a straggler, which may wait beside it, has the same keys with Shift. What a key means
is decided in `press`, without a terminal and without a job.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from dlrover_nb.core.commands.requests import Accept, Reject, SetMode
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.keyboard import keyboard
from dlrover_nb.magics.verb import DetachedError
from dlrover_nb.output import CLI, in_shell_words
from dlrover_nb.terminal import render
from dlrover_nb.widgets.jobs.status import status_tables

if TYPE_CHECKING:
    from typing import TextIO

    from rich.console import RenderableType

    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.commands.requests import Decides
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.keyboard import Keyboard

REDRAW_S = 1.0
ANSWERS: dict[str, type[Accept | Reject]] = {"a": Accept, "r": Reject}
MODES = {"m": Mode.MANUAL, "s": Mode.SUGGEST, "a": Mode.AUTO}
WHY = "by a key in watch"


@dataclass(frozen=True, slots=True)
class Order:
    """What a key asks for, and the version of the job that was drawn."""

    request: Decides
    version: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The state of the line below the job.

    Parameters
    ----------
    answer
        What the last key brought.
    asks_mode
        Whether the next key names a mode.
    has_quit
        Whether the last key ended the display.
    """

    answer: str = ""
    asks_mode: bool = False
    has_quit: bool = False


def press(prompt: Prompt, key: str, shown: JobSnapshot) -> tuple[Prompt, Order | None]:
    """Return what follows from a key, pressed while `shown` was on the screen."""
    if prompt.asks_mode:
        mode = MODES.get(key)
        if mode is None:
            return Prompt("the mode stays"), None
        return Prompt(), Order(SetMode(mode, why=WHY), shown.version)
    if key == "q":
        return Prompt(has_quit=True), None
    if key == "m":
        return Prompt(asks_mode=True), None
    kind = ANSWERS.get(key.lower())
    return (prompt, None) if kind is None else _answer(kind, shown, is_action=key.isupper())


def _answer(
    kind: type[Accept | Reject], shown: JobSnapshot, *, is_action: bool
) -> tuple[Prompt, Order | None]:
    """Answer the open proposal, or the open action against a straggler."""
    opened = shown.open_mitigation if is_action else shown.open_proposal
    if opened is None:
        return Prompt(f"no {'action' if is_action else 'proposal'} is open"), None
    return Prompt(), Order(kind(opened.id, why=WHY))


def keys_line(prompt: Prompt, shown: JobSnapshot) -> str:
    """Return the line that says which keys there are."""
    if prompt.asks_mode:
        return f"mode?  m manual   s suggest   a auto   any other key: keep {shown.mode}"
    proposal = shown.open_proposal
    answers = f"a accept {proposal.id}   r reject {proposal.id}   " if proposal else ""
    if (action := shown.open_mitigation) is not None:
        answers += f"A accept {action.id}   R reject {action.id}   "
    return f"{answers}m mode   q quit (the job goes on)"


def carry_out(order: Order, handle: JobHandle) -> str:
    """Make the decision, and return what to say about it."""
    try:
        made = handle.decide(order.request, version=order.version)
    except DlroverError as error:
        return in_shell_words(str(error))
    return f"{made.id}: {made.words}"


def watch(handle: JobHandle, console: Console | None = None) -> JobSnapshot:
    """Redraw the job each second until it ends or the user quits, which leaves it running.

    Raises
    ------
    DetachedError
        After Ctrl-C: the job keeps running.
    """
    console = console or Console()
    try:
        with keyboard() as keys, Live(console=console, auto_refresh=False) as live:
            snapshot = _Watch(handle, keys, live).until_end()
    except KeyboardInterrupt as error:
        raise DetachedError(_goes_on(handle.name)) from error
    if not snapshot.phase.is_final:
        console.print(_goes_on(handle.name), highlight=False, markup=False)
    return snapshot


class _Watch:
    """One display: the job as last drawn, and the line below it."""

    def __init__(self, handle: JobHandle, keys: Keyboard, live: Live) -> None:
        self._handle, self._keys, self._live = handle, keys, live
        self._prompt = Prompt()
        self._cursor, self._rates = 0, list[float]()

    def until_end(self) -> JobSnapshot:
        """Redraw until the job ends or the user quits; return what was drawn last."""
        while True:
            shown = self._redraw()
            if shown.phase.is_final:
                return shown
            for key in self._keys.read(REDRAW_S):
                self._take(key, shown)
                if self._prompt.has_quit:
                    return shown

    def _take(self, key: str, shown: JobSnapshot) -> None:
        self._prompt, order = press(self._prompt, key, shown)
        if order is not None:
            self._prompt = replace(self._prompt, answer=carry_out(order, self._handle))

    def _redraw(self) -> JobSnapshot:
        chunk = self._handle.series(self._cursor)
        self._cursor = chunk.cursor
        self._rates += chunk.job.get("samples_per_s", [])
        snapshot = self._handle.snapshot()
        self._live.update(self._drawn(snapshot), refresh=True)
        return snapshot

    def _drawn(self, snapshot: JobSnapshot) -> RenderableType:
        story = tuple(map(in_shell_words, snapshot.story))
        in_shell = replace(snapshot, story=story, message=in_shell_words(snapshot.message))
        lines = [Text(self._prompt.answer)] if self._prompt.answer else []
        if self._keys.is_there and not snapshot.phase.is_final:
            lines.append(Text(keys_line(self._prompt, snapshot), style="dim"))
        return Group(render(in_shell, self._rates), *lines)


def follow(handle: JobHandle, stream: TextIO) -> JobSnapshot:
    """Write the job's state as one line of JSON each second until it ends.

    Raises
    ------
    DetachedError
        After Ctrl-C: the job keeps running.
    """
    try:
        while True:
            snapshot = handle.snapshot()
            stream.write(in_shell_words(status_tables(snapshot).json().decode()) + "\n")
            stream.flush()
            if snapshot.phase.is_final:
                return snapshot
            time.sleep(REDRAW_S)
    except KeyboardInterrupt as error:
        raise DetachedError(_goes_on(handle.name)) from error


def _goes_on(job: str) -> str:
    return f"job {job} goes on; `{CLI} end {job} --now` stops it"
