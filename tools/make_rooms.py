"""Write the table of rooms into docs/explanation/structure.md: `python tools/make_rooms.py`.

A room is a package, and what it is for stands in its docstring: the first paragraph of that is its line in
the table. A test fails while the page says anything else, so that no room is without a line.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "dlrover_nb"
PAGE = "docs/explanation/structure.md"
BEGIN, END = "<!-- rooms -->\n", "<!-- end of rooms -->\n"
HEAD = "| room | what it is for |\n| --- | --- |\n"


def page() -> str:
    """Return the page with its table renewed."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{HEAD}{''.join(map(_line, _rooms()))}{END}{after}"


def _rooms() -> list[Path]:
    folders = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))
    return [each for each in folders if each != PACKAGE]


def _line(room: Path) -> str:
    return f"| `{room.relative_to(PACKAGE).as_posix()}` | {_purpose(room)} |\n"


def _purpose(room: Path) -> str:
    tree = ast.parse((room / "__init__.py").read_text(encoding="utf-8"))
    paragraph = (ast.get_docstring(tree) or "").partition("\n\n")[0]
    return re.sub(r"\s+", " ", paragraph.replace("``", "`").replace("|", "\\|"))


if __name__ == "__main__":
    (ROOT / PAGE).write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE}\n")
