"""The page of the structure names every room, and what it is for."""

from importlib import util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_room_has_its_line() -> None:
    spec = util.spec_from_file_location("make_rooms", ROOT / "tools/make_rooms.py")
    tool = util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    page = (ROOT / tool.PAGE).read_text(encoding="utf-8")
    assert page == tool.page(), "renew it with: python tools/make_rooms.py"
