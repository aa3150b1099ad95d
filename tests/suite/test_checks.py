"""Format, lint, types, import contracts and structure hold: the recipes of `make check`, beside the other tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="needs make")


def run(target):
    """Run a target with the environment that the tests run in."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    command = ["make", "--no-print-directory", target, f"VENV={Path(sys.executable).parents[1]}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("target", ["types", "lint", "imports", "structure"])
def test_the_code_passes(target):
    run(target)


@pytest.mark.more
@pytest.mark.parametrize("target", ["docs", "second-python"])
def test_what_is_built_of_it_is_sound(target):
    run(target)
