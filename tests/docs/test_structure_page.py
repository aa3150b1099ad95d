"""The page of the structure names every room, and nothing that is not there."""

import ast
import re
from importlib import util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dlrover_nb"
PAGE = (ROOT / "docs/explanation/structure.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([a-z_0-9/]+(?:\.py|/[a-z_0-9]+))(?:::([\w.]+))?`")
ELSEWHERE = ("docs/", "tools/", "dlrover_nb/")  # parts of the checkout beside the package


def _tool(name: str):
    spec = util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    tool = util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_every_room_has_its_line() -> None:
    assert _tool("make_rooms").page() == PAGE, "renew it with: python tools/make_rooms.py"


def test_the_picture_is_that_of_the_contracts() -> None:
    tool = _tool("make_structure_picture")
    drawn = (ROOT / tool.PICTURE).read_text(encoding="utf-8")
    assert drawn == tool.picture(), "renew it with: python tools/make_structure_picture.py"


def _has(path: Path, dotted: str) -> bool:
    """Whether a file defines a name, or a member of a class."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for name in dotted.split("."):
        kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        found = next((each for each in body if isinstance(each, kinds) and each.name == name), None)
        if found is None:
            return False
        body = found.body
    return True


def _is_there(path: str, name: str) -> bool:
    place = (ROOT if path.startswith(ELSEWHERE) else PACKAGE) / path
    return _has(place, name) if name and place.exists() else place.exists()


@pytest.mark.parametrize("section", ["Processes", "Five trips", "Which files"])
def test_every_file_and_function_on_the_page_is_there(section: str) -> None:
    text = PAGE[PAGE.index(f"## {section}") :].split("\n## ")[0]
    named = NAMED.findall(text)
    assert len(named) > 5
    assert [f"{path}::{name}" for path, name in named if not _is_there(path, name)] == []
