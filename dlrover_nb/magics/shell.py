"""`%dlrover` and `%%dlrover` for IPython: a thin layer between a shell and the commands.

Every verb returns an object that displays itself and prints nothing; only an old name says how it is spelled
now. Errors of the user become a `UsageError`, one line without a traceback; any other exception is a bug of
this package and keeps its traceback. IPython writes its own class of that name to the standard error alone,
so programs that run notebooks (nbclient, papermill) found a cell that failed without a reason; ours is an
error output of one line. IPython's expansion of ``{x}`` and ``$x`` stays on, so that
``--file {path}`` can use a variable of the notebook; text that is no such expression is left as it is. A
cell's body is never expanded.

The handlers of the verbs load with the first verb: loading the extension takes a moment, not a second.
"""

from __future__ import annotations

import re
import sys
from functools import cached_property
from typing import TYPE_CHECKING

from IPython.core import error as shell_errors
from IPython.core.completer import SimpleCompletion, context_matcher
from IPython.core.magic import Magics, line_cell_magic, magics_class

from dlrover_nb.api.views import reprs
from dlrover_nb.core.errors import BackendError, DlroverError, JobFailedError
from dlrover_nb.magics.arguments import GRAMMAR
from dlrover_nb.magics.ray_messages import RAY_MESSAGES
from dlrover_nb.magics.verb import DetachedError

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext, SimpleMatcherResult
    from IPython.core.interactiveshell import InteractiveShell

    from dlrover_nb.magics.commands import Commands
    from dlrover_nb.widgets.jobs.wait_lines import WaitLine


class UsageError(shell_errors.UsageError):  # type: ignore[misc]  # IPython carries no types here
    """A mistake of the user: an error of the cell, shown as one line."""

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows in place of a traceback."""
        return [f"UsageError: {self}"]


@magics_class
class DlroverMagics(Magics):  # type: ignore[misc]  # IPython carries no types here
    """The magics of one shell, with their session."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self.matcher = _matcher_of(self)
        self._said: set[str] = set()
        self._is_only_output = False  # what the running verb waits for, in its cell

    @cached_property
    def commands(self) -> Commands:
        """The commands behind the verbs, created at the first verb."""
        from dlrover_nb.core.connect import connect  # noqa: PLC0415 - half a second, at the first verb
        from dlrover_nb.magics.commands import Commands  # noqa: PLC0415 - as above
        from dlrover_nb.widgets.jobs.wait_lines import session_line  # noqa: PLC0415 - as above

        def line() -> WaitLine | None:
            return session_line(is_only=self._is_only_output)

        return Commands(RAY_MESSAGES.kept_by(connect), namespace=self.shell.user_ns, line=line)

    @line_cell_magic  # type: ignore[untyped-decorator]  # as above
    def dlrover(self, line: str, cell: str | None = None) -> object:
        """Run one verb; the help of all verbs takes this text's place."""
        from dlrover_nb.api.views.job_views import Note  # noqa: PLC0415 - as the commands

        is_last = cell is None and self._ends_with(line)
        is_hidden = is_last and line.rstrip().endswith(";")  # IPython heeds that behind an expression alone
        self.commands.is_shown = cell is not None or (is_last and not is_hidden)
        try:
            with RAY_MESSAGES.kept():
                call = GRAMMAR.parse_line(line, has_cell=cell is not None)
                self._is_only_output = not call.verb.takes_cell and self._begins_with(line)
                shown = self.commands.run(call, cell)
                self._say_once(call.hint)
                return None if is_hidden else shown
        except DetachedError as detached:
            return Note("Detached", str(detached))
        except DlroverError as error:
            hint = RAY_MESSAGES.hint if isinstance(error, BackendError | JobFailedError) else ""
            raise UsageError("\n".join(filter(None, (error.text, hint)))) from error

    def _say_once(self, hint: str) -> None:
        """Say how an old verb is spelled now, where its result is shown, once in a session."""
        if hint and self.commands.is_shown and hint not in self._said:
            self._said.add(hint)
            sys.stderr.write(f"{hint}\n")

    def _ends_with(self, line: str) -> bool:
        """Whether the cell that runs ends with this call, unassigned: then its result is displayed."""
        return self._cell.rstrip().split("\n")[-1] == _call_of(line)

    def _begins_with(self, line: str) -> bool:
        """Whether the cell that runs begins with this call, so that nothing else has drawn in it so far."""
        lines = (each for each in self._cell.split("\n") if each.strip() and not each.startswith("#"))
        return re.sub(r"^\w+ = ", "", next(lines, "")) == _call_of(line)

    @property
    def _cell(self) -> str:
        return str(self.shell.user_ns.get("In", [""])[-1])

    dlrover.__doc__ = GRAMMAR.help_text()


def _call_of(line: str) -> str:
    """Return a line of a cell with this magic, as IPython has it."""
    return f"get_ipython().run_line_magic('dlrover', {line!r})"


_QUESTION = re.compile(r"\s*%%?dlrover\s+(?P<verb>[\w-]+)(?:\s+--[\w-]+)*\s*\?{1,2}\s*")


def explain_verbs(lines: list[str]) -> list[str]:
    """Read ``%dlrover VERB?`` as ``%dlrover help VERB``: IPython would look for a variable of that name."""
    (text, *more) = [line for line in lines if line.strip()] or [""]
    match = None if more else _QUESTION.fullmatch(text)
    return lines if match is None else [f"%dlrover help {match['verb']}\n"]


def _matcher_of(magics: DlroverMagics) -> object:
    @context_matcher(identifier="dlrover_nb")  # type: ignore[untyped-decorator]  # as above
    def dlrover_matcher(context: CompletionContext) -> SimpleMatcherResult:
        from dlrover_nb.magics.completion import complete  # noqa: PLC0415 - at the first completion

        fragment, texts = complete(
            magics.commands.session, context.full_text, context.cursor_line, context.cursor_position
        )
        return {
            "completions": [SimpleCompletion(text=text, type="dlrover") for text in texts],
            "matched_fragment": fragment,
            "suppress": bool(texts),
        }

    return dlrover_matcher


def load(shell: InteractiveShell) -> None:
    """Add the magics to a shell; a second time changes nothing."""
    if loaded(shell) is not None:
        return
    magics = DlroverMagics(shell)
    shell.register_magics(magics)
    shell.Completer.custom_matchers.append(magics.matcher)
    shell.input_transformers_cleanup.append(explain_verbs)
    reprs.register(shell.display_formatter)


def unload(shell: InteractiveShell) -> None:
    """Take the magics out of a shell; jobs go on."""
    magics = loaded(shell)
    if magics is None:
        return
    shell.Completer.custom_matchers.remove(magics.matcher)
    shell.input_transformers_cleanup.remove(explain_verbs)
    reprs.unregister(shell.display_formatter)
    shell.magics_manager.registry.pop(DlroverMagics.__name__)
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("dlrover", None)


def loaded(shell: InteractiveShell) -> DlroverMagics | None:
    """Return the magics of a shell, if it has them."""
    magics = shell.magics_manager.registry.get(DlroverMagics.__name__)
    return magics if isinstance(magics, DlroverMagics) else None
