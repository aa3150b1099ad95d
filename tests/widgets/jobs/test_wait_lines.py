"""The line that says what is waited for: on a terminal, in a pipe, in a notebook."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell
from support.cases import for_each

from dlrover_nb.widgets.jobs import wait_lines
from dlrover_nb.widgets.jobs.wait_lines import NotebookLine, PlainLines, TerminalLine, stream_line, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@for_each(("waited_s", "duration"), [(0.4, "0 s"), (12.9, "12 s"), (60, "1 min 0 s"), (7325, "2 h 2 min")])
def test_a_line_says_what_is_waited_for_and_how_long(waited_s: float, duration: str, words) -> None:
    text = text_of("first steps: 1 of 2 nodes up", waited_s)
    assert text == words
    assert duration in text


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


def test_a_pipe_hears_of_a_wait_after_two_seconds() -> None:
    stream = io.StringIO()
    line = PlainLines(stream)
    for waited_s in (1.0, 2.0, 3.0, 4.0):
        line.show(f"{waited_s}", waited_s)
    assert stream.getvalue().split() == ["2.0", "4.0"]


def test_only_a_terminal_that_can_erase_is_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    assert isinstance(stream_line(stream), PlainLines)
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(stream_line(stream), TerminalLine)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(stream_line(stream), PlainLines)


Shown = tuple[dict[str, str], bool, str]


@pytest.fixture
def outputs() -> Iterator[list[Shown | str]]:
    """What a shell publishes: data, whether it replaces what has its name, and that name; or a clearing."""
    shell = InteractiveShell.instance()
    shown: list[Shown | str] = []

    def take(data, metadata=None, *, transient=None, update=False, **_) -> None:
        shown.append((data, update, transient["display_id"]))

    shell.display_pub.publish = take
    shell.display_pub.clear_output = lambda *_, **__: shown.append("cleared")
    yield shown
    del shell.display_pub.publish, shell.display_pub.clear_output
    InteractiveShell.clear_instance()


def drawn(*, is_only: bool) -> None:
    line = NotebookLine(is_only=is_only)
    line.close()
    line.show("Waiting for <b> (1 s)", 1.0)
    line.show("Waiting for <b> (2 s)", 2.0)
    line.close()
    line.close()


def test_a_notebook_has_one_output_with_nothing_to_show_in_the_end(outputs: list[Shown]) -> None:
    drawn(is_only=False)
    assert [data.get("text/plain") for data, *_ in outputs] == [
        "Waiting for <b> (1 s)",
        "Waiting for <b> (2 s)",
        None,
    ]
    assert outputs[-1][0] == {}
    assert [update for _, update, _ in outputs] == [False, True, True]
    assert len({display_id for *_, display_id in outputs}) == 1
    assert "&lt;b&gt;" in outputs[0][0]["text/html"]


def test_a_cell_without_another_output_has_none_in_the_end(outputs: list[Shown | str]) -> None:
    drawn(is_only=True)
    assert outputs[2:] == ["cleared"]


def test_what_another_drawing_shows_is_not_cleared(outputs: list[Shown | str]) -> None:
    line = NotebookLine(is_only=True)
    line.show("Waiting (1 s)", 1.0)
    line.close()  # something else draws from now on
    line.show("Waiting (9 s)", 9.0)
    line.close()
    assert outputs.count("cleared") == 1
    assert outputs[-1][0] == {}
