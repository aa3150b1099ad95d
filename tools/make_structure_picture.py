"""Draw docs/explanation/structure.svg, the floors of the code: `python tools/make_structure_picture.py`.

A floor is a layer of an import contract in pyproject.toml, and a box on it is a room: it imports rooms below
it alone. Rooms that read no clock and no network, by another contract, are green. Both contracts are checked
with the tests, and so is that the picture is drawn from them.
"""

from __future__ import annotations

import sys
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = "docs/explanation/structure.svg"
WIDTH, LEFT, FLOOR, GAP, HEAD = 960, 12, 26, 5, 34
NOTE = "A room imports rooms below it alone. Green: pure decisions, without clock, network or threads."
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1a1a1a}.head{font-size:14px;font-weight:600}"
    "rect{fill:#fff;stroke:#888}.pure{fill:#d3ecdb}.page{fill:#f6f6f4;stroke:none}"
)


def picture() -> str:
    """Return the picture."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    pure = {
        name for each in contracts if each["name"].startswith("Decisions") for name in each["source_modules"]
    }
    parts: list[str] = []
    top = 0
    for contract in (each for each in contracts if "containers" in each):
        container = contract["containers"][0]
        parts.append(f'<text class="head" x="{LEFT}" y="{top + 22}">{escape(contract["name"])}</text>')
        top += HEAD
        for layer in contract["layers"]:
            rooms = [name.strip() for name in layer.split("|")]
            parts += _floor({name: f"{container}.{name}" in pure for name in rooms}, top)
            top += FLOOR + GAP
        top += GAP
    parts.append(f'<text x="{LEFT}" y="{top + 12}">{NOTE}</text>')
    size = f'viewBox="0 0 {WIDTH} {top + 24}" width="{WIDTH}" height="{top + 24}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="Layers of the code">'
    page = f'<rect class="page" width="{WIDTH}" height="{top + 24}"/>'
    return "\n".join([f"{head}<style>{STYLE}</style>", page, *parts, "</svg>\n"])


def _floor(rooms: dict[str, bool], top: int) -> list[str]:
    """Return the boxes of one floor side by side, each as wide as its name needs."""
    free = WIDTH - 2 * LEFT - GAP * (len(rooms) - 1)
    n_letter = sum(len(name) + 3 for name in rooms)
    parts, x = [], float(LEFT)
    for name, is_pure in rooms.items():
        width = free * (len(name) + 3) / n_letter
        kind = ' class="pure"' if is_pure else ""
        parts += [
            f'<rect{kind} x="{x:.1f}" y="{top}" width="{width:.1f}" height="{FLOOR}" rx="4"/>',
            f'<text x="{x + width / 2:.1f}" y="{top + 17}" text-anchor="middle">{escape(name)}</text>',
        ]
        x += width + GAP
    return parts


if __name__ == "__main__":
    (ROOT / PICTURE).write_text(picture(), encoding="utf-8")
    sys.stdout.write(f"wrote {PICTURE}\n")
