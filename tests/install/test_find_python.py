"""tools/find_python.sh takes the first Python that fits, and says what it tried where none does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "find_python.sh"
REAL = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'
SHIM = "#!/bin/sh\necho 'pyenv: this version is not selected' >&2\nexit 127\n"


def answering(version, *, has_venv=True):
    """Return a program that answers as a Python of this version does."""
    answers = f"*version_info*) echo {version} ;; *ensurepip*) exit {int(not has_venv)} ;;"
    return f'#!/bin/sh\ncase "$2" in {answers} esac\n'


@pytest.fixture
def place(tmp_path):
    def put(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
        return str(file)

    return put


@pytest.fixture
def find(tmp_path):
    """Run the script with these folders as the PATH, and with no pyenv but the one below `tmp_path`."""

    def run(*versions, path=("bin",), python=""):
        environment = {
            "PATH": os.pathsep.join(str(tmp_path / folder) for folder in path),
            "PYENV_ROOT": str(tmp_path / "pyenv"),
            "PYTHON": python,
        }
        command = ["/bin/sh", str(SCRIPT), *versions]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    (tmp_path / "bin").mkdir()
    return run


def test_the_python_that_the_tests_run_with_comes_first(place, find):
    place("bin/python3", REAL)
    place("bin/python3.13", REAL)
    expected = place("bin/python3.11", REAL)
    done = find()
    assert (done.stdout.strip(), done.returncode) == (expected, 0)


def test_python3_serves_where_no_version_has_a_name_of_its_own(place, find):
    expected = place("bin/python3", REAL)
    assert find().stdout.strip() == expected


def test_a_shim_that_does_not_run_and_an_old_python_hide_nothing_behind_them(place, find):
    place("shims/python3.11", SHIM)
    place("old/python3", answering("3 9 2"))
    expected = place("bin/python3", REAL)
    assert find(path=("shims", "old", "bin")).stdout.strip() == expected


def test_pyenv_has_what_the_path_has_not(place, find):
    expected = place("pyenv/versions/3.12.1/bin/python", REAL)
    assert find().stdout.strip() == expected


def test_named_versions_are_looked_for_in_their_order_and_alone(place, find):
    place("bin/python3.11", REAL)
    place("bin/python3", REAL)
    twelve = place("bin/python3.12", REAL)
    assert find("3.13", "3.12").stdout.strip() == twelve
    assert find("3.13").returncode == 1


def test_where_none_fits_it_says_what_was_tried_and_what_to_do(place, find):
    shim = place("bin/python3.11", SHIM)
    bare = place("bin/python3.12", answering("3 12 4", has_venv=False))
    old = place("bin/python3", answering("3 9 2"))
    done = find()
    assert (done.stdout, done.returncode) == ("", 1)
    assert f"{shim}: does not run" in done.stderr
    assert f"{bare}: is 3.12.4, without venv (Debian: apt-get install python3.12-venv)" in done.stderr
    assert f"{old}: is 3.9.2" in done.stderr
    assert "python3.13: not on PATH" in done.stderr
    assert "make install PYTHON=/path/to/python3" in done.stderr


def test_a_python_that_is_named_is_the_only_one(place, find):
    place("bin/python3.11", REAL)
    named = place("bin/my-python", REAL)
    assert find(python="my-python").stdout.strip() == named
    assert find(python=named).stdout.strip() == named
    missing = find(python="/nowhere/python3")
    assert missing.returncode == 1
    assert "/nowhere/python3: not there" in missing.stderr
