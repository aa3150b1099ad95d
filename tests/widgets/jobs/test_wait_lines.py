"""The line that says what is waited for: on a terminal, in a pipe, in a notebook."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell
from support.cases import for_each

from dlrover_nb.widgets.jobs import wait_lines
from dlrover_nb.widgets.jobs.wait_lines import NotebookLine, PlainLines, TerminalLine, stream_line, text_of

if TYPE_CHECKING:
    import pytest


@for_each(("waited_s", "told"), [(0.4, "0 s"), (12.9, "12 s"), (60, "1 min 0 s"), (7325, "2 h 2 min")])
def test_a_line_says_what_is_waited_for_and_how_long(waited_s: float, told: str) -> None:
    assert (
        text_of("first steps: 1 of 2 nodes up", waited_s)
        == f"Waiting for first steps: 1 of 2 nodes up ({told})"
    )


def test_a_terminal_shows_one_line_and_is_clean_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream = io.StringIO()
    line = TerminalLine(stream)
    line.show("one", 1.0)
    line.show("a text that is wider than the terminal", 2.0)
    line.close()
    line.close()
    assert stream.getvalue() == "\r\x1b[Kone\r\x1b[Ka text that is wide\r\x1b[K"


def test_nothing_is_erased_where_nothing_was_drawn() -> None:
    stream = io.StringIO()
    TerminalLine(stream).close()
    assert stream.getvalue() == ""


@settings(deadline=None)
@given(st.integers(0, 100_000))
def test_lines_in_a_pipe_get_rarer(last_s: int) -> None:
    stream = io.StringIO()
    line = PlainLines(stream)
    for second in range(0, last_s, max(1, last_s // 1000)):
        line.show(f"{second}", float(second))
    at_s = [int(text) for text in stream.getvalue().splitlines()]
    assert all(at >= wait_lines.FIRST_S for at in at_s)
    assert all(later >= 2 * earlier for earlier, later in pairwise(at_s))


def test_only_a_terminal_that_can_erase_is_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    assert isinstance(stream_line(stream), PlainLines)
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(stream_line(stream), TerminalLine)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(stream_line(stream), PlainLines)


def test_a_notebook_has_one_output_that_is_empty_in_the_end() -> None:
    shell = InteractiveShell.instance()
    shown: list[tuple[dict[str, str], bool, str]] = []
    publish = shell.display_pub.publish

    def take(data, metadata=None, *, transient=None, update=False, **_) -> None:
        shown.append((data, update, transient["display_id"]))

    shell.display_pub.publish = take
    try:
        line = NotebookLine()
        line.show("Waiting for <b> (1 s)", 1.0)
        line.show("Waiting for <b> (2 s)", 2.0)
        line.close()
    finally:
        shell.display_pub.publish = publish
        InteractiveShell.clear_instance()
    assert [data["text/plain"] for data, *_ in shown] == [
        "Waiting for <b> (1 s)",
        "Waiting for <b> (2 s)",
        "",
    ]
    assert [update for _, update, _ in shown] == [False, True, True]
    assert len({display_id for *_, display_id in shown}) == 1
    assert "&lt;b&gt;" in shown[0][0]["text/html"]
