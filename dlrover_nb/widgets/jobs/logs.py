"""Logs of nodes as a view: newest last, as in a terminal."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dlrover_nb.widgets.blocks import Block, Paragraph, Verbatim, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.decisions.query_answers import LogLine

# A node's text may hold sequences that move a terminal's cursor or hide what stood there.
_ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def logs_view(name: str, lines: Sequence[LogLine]) -> View:
    """Return the lines of a job's nodes, or of the node `name`."""
    if not lines:
        return View(f"Logs of {name}", (Paragraph("Nothing was written yet."),))
    wide = max(len(line.node) for line in lines)
    text = "\n".join(line_text(line, wide) for line in lines)
    n_node = len({line.node for line in lines})
    note = f"{len(lines)} lines of {n_node} node{'s' * (n_node != 1)}, newest last; times in UTC."
    blocks: tuple[Block, ...] = (Verbatim(text), Paragraph(note))
    return View(f"Logs of {name}", blocks)


def line_text(line: LogLine, wide: int = 0) -> str:
    """Return one line as text, without terminal control sequences."""
    at = datetime.fromtimestamp(line.at_s, UTC).strftime("%H:%M:%S")
    return f"{at} {plain(line.node):<{wide}} {plain(line.level):<7} {plain(line.text)}".rstrip()


def plain(text: str) -> str:
    """Return text without control characters except tab and line feed."""
    return _CONTROL.sub("", _ESCAPE.sub("", text))
