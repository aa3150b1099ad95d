"""The wheel that pip builds: for any Python 3, with the compiled kernel or, without a compiler, for any platform."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.utils import parse_wheel_filename

pytestmark = pytest.mark.more

ROOT = Path(__file__).parents[2]
LIBRARY = "dlrover_nb/core/runtime/kernels/_kernel.so"
HAS_COMPILER = any(map(shutil.which, ("gcc", "cc")))


@pytest.fixture
def build(tmp_path):
    """Build a wheel from a copy of the sources; without a network, by the setuptools of this environment."""

    def run(**environment):
        source = tmp_path / "source"
        without = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / "dlrover_nb", source / "dlrover_nb", ignore=without)
        for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run(
            [*command, "--no-index", "--wheel-dir", str(tmp_path / "out"), str(source)],
            check=True,
            env=os.environ | environment,
        )
        [wheel] = (tmp_path / "out").glob("*.whl")
        return wheel

    return run


def tag_of(wheel):
    [tag] = parse_wheel_filename(wheel.name)[-1]
    return tag


def other_python():
    """Return a Python of another version than this one where the machine has one."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    versions = [version for version in ("3.13", "3.12", "3.14", "3.11") if version != here]
    done = subprocess.run(
        [ROOT / "tools" / "find_python.sh", *versions],
        env={key: value for key, value in os.environ.items() if key != "PYTHON"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


@pytest.mark.skipif(not HAS_COMPILER, reason="needs a C compiler")
def test_the_wheel_names_no_python_version_and_its_kernel_loads_on_another(build, tmp_path):
    wheel = build()
    tag = tag_of(wheel)
    assert (tag.interpreter, tag.abi) == ("py3", "none")
    assert tag.platform.startswith("linux_")
    with zipfile.ZipFile(wheel) as archive:
        library = archive.extract(LIBRARY, tmp_path)
    load = f"import ctypes; print(ctypes.CDLL({library!r}).version())"
    versions = {
        subprocess.run([python, "-c", load], capture_output=True, text=True, check=True).stdout
        for python in (sys.executable, other_python())
        if python
    }
    assert len(versions) == 1


def test_without_a_compiler_the_wheel_is_for_any_platform(build):
    wheel = build(CC="/nowhere/cc")
    assert str(tag_of(wheel)) == "py3-none-any"
    names = [name.rpartition("/platlib/")[2] for name in zipfile.ZipFile(wheel).namelist()]
    assert LIBRARY not in names
    pages = [path.relative_to(ROOT) for path in (ROOT / "dlrover_nb/dashboard/templates").iterdir()]
    assert pages
    assert {str(path) for path in pages} <= set(names)
