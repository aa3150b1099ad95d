"""Long tests run as far as the minutes of a run go, after all others, and what lists them names tests that exist."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from long_tests import file_of, listed, turn

TESTS = Path(__file__).parent
SUITE = """
import pytest

@pytest.mark.parametrize("n", [1, 2])
def test_with_variants(n): pass

def test_slow(): pass

def test_quick(): pass
"""
LANE = """
from pathlib import Path
import pytest
from waiting import until

pytestmark = pytest.mark.pods
DONE = []

def test_quick():
    until(Path("{made}").exists, what="the long unit test")
    DONE.append(1)

def test_second(): pass

def test_slow():
    assert DONE, "in another process, or too early"
"""
SLOW = "tests/test_a.py::test_slow"
SECOND = "tests/test_a.py::test_with_variants[2]"


@pytest.fixture
def suite(tmp_path):
    folder = tmp_path / "tests"
    folder.mkdir()
    for name in ("parts.py", "long_tests.py"):
        shutil.copy(TESTS / name, folder)
    (folder / "conftest.py").write_text('pytest_plugins = ["long_tests", "parts"]\n')
    for name in ("test_a.py", "test_b.py"):
        (folder / name).write_text(SUITE)
    (folder / "long_tests.txt").write_text(f"# those that wait\n{SLOW}\n{SECOND}\n")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\npythonpath = tests\ntestpaths = tests\nmarkers =\n  long\n  pods\n  browser\n  ray\n  kube\n"
    )
    return tmp_path


def run(suite: Path, *arguments: str) -> list[str]:
    """Return the lines that a run printed."""
    command = [sys.executable, "-m", "pytest", "-v", "-rs", "-p", "no:cacheprovider", *arguments]
    env = {key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"}
    done = subprocess.run(command, cwd=suite, env=env, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).splitlines()


def results(lines: list[str]) -> list[tuple[str, str]]:
    """Return the tests of a run in one process and how each went, in their order."""
    found = [line.split() for line in lines if "::" in line and "%]" in line]
    return [(each[0].partition("@")[0], each[1]) for each in found]


def test_without_minutes_all_run_and_the_long_ones_come_last(suite):
    tests = results(run(suite))
    assert len(tests) == 8
    assert {how for _, how in tests} == {"PASSED"}
    assert {name for name, _ in tests[-2:]} == {SLOW, SECOND}


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "loadgroup")], ids=["one process", "workers"])
def test_when_the_minutes_are_over_long_tests_are_left_out_and_all_others_run(suite, workers):
    lines = run(suite, "--long-minutes", "0", *workers)
    assert "6 passed, 2 skipped" in lines[-1]
    assert any("[2] tests/long_tests.py" in line and "no more minutes" in line for line in lines)


def test_long_tests_run_while_there_are_minutes(suite):
    assert "8 passed" in run(suite, "--long-minutes", "9", "-n", "2", "--dist", "loadgroup")[-1]


def test_they_can_be_selected(suite):
    assert {name for name, _ in results(run(suite, "-m", "long"))} == {SLOW, SECOND}


def test_the_order_of_their_files_differs_from_one_commit_to_another(monkeypatch):
    orders = set()
    for commit in "abcdefgh":
        monkeypatch.setenv("DLROVER_NB_TEST_SEED", commit)
        assert turn("test_a.py") == turn("test_a.py")  # in whichever process
        orders.add(turn("test_a.py") < turn("test_b.py"))
    assert orders == {True, False}


def test_the_long_ones_of_a_lane_wait_for_its_others_while_there_is_other_work(suite, monkeypatch):
    """A second cluster would be started beside the first one: here the first one waits for a long unit test."""
    folder = suite / "tests"
    shutil.copy(TESTS / "waiting.py", folder)
    made = suite / "made"
    (folder / "test_pods.py").write_text(LANE.format(made=made))
    (folder / "test_b.py").write_text(
        f"from pathlib import Path\ndef test_slow(): Path({str(made)!r}).touch()\n"
    )
    slow, pods = "tests/test_b.py::test_slow", "tests/test_pods.py::test_slow"
    (folder / "long_tests.txt").write_text(f"{slow}\n{pods}\n")
    for commit in map(str, range(64)):
        monkeypatch.setenv("DLROVER_NB_TEST_SEED", commit)
        if turn("pods long") < turn("tests/test_b.py long"):
            break
    assert "8 passed" in run(suite, "-n", "2", "--dist", "loadgroup")[-1]


def test_a_line_that_names_no_test_of_its_file_is_told(suite):
    gone = "tests/test_a.py::test_that_was_renamed"
    (suite / "tests" / "long_tests.txt").write_text(f"{gone}\n")
    for arguments in ((), ("tests/test_a.py",)):
        assert any(gone in line for line in run(suite, *arguments))
    assert "passed" in run(suite, "tests/test_b.py")[-1]


def test_the_files_that_are_listed_exist():
    root = TESTS.parent
    assert all((root / file_of(name)).is_file() for name in listed())
