"""Entry points of packages that are really on the path, with metadata as an installer writes it."""

from __future__ import annotations

import sys

import pytest

from dlrover_nb.core import extensions
from dlrover_nb.core.errors import InvalidValueError

GROUP = "dlrover_nb.policies"


@pytest.fixture
def install(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)

    def package(name: str, code: str, *points: str, group: str = GROUP) -> None:
        (tmp_path / f"{name}.py").write_text(code)
        metadata = tmp_path / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"[{group}]", *points]
        (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
        monkeypatch.delitem(sys.modules, name, raising=False)

    return package


def test_what_a_package_adds_is_found_by_name_and_in_its_group_alone(install):
    install("night_shift", "answer = 42", "night-shift = night_shift:answer")
    assert extensions.load(GROUP) == {"night-shift": 42}
    assert extensions.load("dlrover_nb.charts") == {}
    assert extensions.find(GROUP, "night-shift", {"ours": 1}) == 42
    assert extensions.find(GROUP, "ours", {"ours": 1}) == 1


def test_an_unknown_name_is_refused_with_the_nearest_one(install, error_words):
    install("night_shift", "answer = 42", "night-shift = night_shift:answer")
    with error_words(InvalidValueError):
        extensions.find(GROUP, "nightshift", {"ours": 1})


def test_a_broken_package_is_named_and_breaks_no_other_name(install):
    install("broken_one", "import nothing_of_this_name", "broken = broken_one:policy")
    assert extensions.find(GROUP, "ours", {"ours": 1}) == 1
    with pytest.raises(InvalidValueError, match=r"ModuleNotFoundError.*repair or uninstall broken_one"):
        extensions.find(GROUP, "broken", {"ours": 1})


def test_a_name_that_two_have_is_refused(install, error_words):
    install("first_one", "a = 1", "same = first_one:a")
    install("second_one", "a = 2", "same = second_one:a")
    with error_words(InvalidValueError):
        extensions.load(GROUP)
    install("third_one", "a = 3", "ours = third_one:a", group="dlrover_nb.charts")
    with error_words(InvalidValueError):
        extensions.find("dlrover_nb.charts", "ours", {"ours": 1})
