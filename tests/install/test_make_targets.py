"""What `make` installs for a target: what the target needs, and nothing that is there."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="needs make")


@pytest.fixture
def installs(tmp_path):
    """Return the sets of extras that `make TARGET` would install into the environment of this test."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()

    def plan(target):
        command = ["make", "--dry-run", target, f"VENV={tmp_path}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return [
            set(found.split(",")) for found in re.findall(r'install .*-c .* -e "\.\[(.*)\]"', done.stdout)
        ]

    return plan


@pytest.mark.parametrize(("target", "extras"), [("demo", {"ray", "torch"}), ("lab", {"all"})])
def test_demo_and_lab_install_no_development_tools(installs, target, extras):
    assert installs(target) == [extras]
    assert extras <= set(EXTRAS)


def test_tests_need_all_extras_and_the_development_tools(installs):
    assert installs("install") == installs("test") == [{"all", "dev"}]


def test_what_a_larger_set_installed_is_not_installed_again(installs, tmp_path):
    for stamp in ("demo", "all"):
        (tmp_path / f".installed-{stamp}").touch()
    assert installs("demo") == installs("lab") == []
    assert installs("install") == [{"all", "dev"}]


def test_an_environment_is_made_once(installs, tmp_path):
    command = ["make", "--dry-run", "install", f"VENV={tmp_path / 'new'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "find_python.sh" in done.stdout
    assert "-m venv" in done.stdout
    (tmp_path / ".installed-dev").touch()
    assert installs("install") == []


@pytest.mark.parametrize(("user", "is_root"), [("0", True), ("1000", False)])
def test_lab_works_for_root_too_and_says_so(tmp_path, user, is_root):
    programs = {tmp_path / "id": f"echo {user}", tmp_path / "bin" / "jupyter": 'echo "jupyter $*"'}
    (tmp_path / "bin").mkdir()
    for path, text in programs.items():
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    for name in ("bin/python", ".installed-all"):
        (tmp_path / name).touch()
    command = ["make", "--no-print-directory", "lab", f"VENV={tmp_path}"]
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert ("--allow-root notebooks/" in done.stdout.split("jupyter lab")[-1]) is is_root
    assert "--ip 127.0.0.1" in done.stdout
    assert ("you are root: JupyterLab runs" in done.stdout.splitlines()[0]) is is_root
