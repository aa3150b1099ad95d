"""Try the wheel on another Python than that of this environment, where the machine has one.

Builds the wheel, installs it with pinned requirements into an environment of the other Python, and tries
there what differs first between Pythons: that all of it installs, the compiled kernel, the magics in a
shell, the program, and nodes in processes of their own. The other tests run on the Python of the checkout
alone.

The tests are copied beside the environment: run in the checkout, they would import its package and not the
wheel's. Extras are given as an argument; `tests/conftest.py` needs the default ones. torch is none of them,
so no job trains: for most Pythons the package index has only its CUDA build of several gigabytes. The
environment is kept for the next time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "second-python"
TOOLS = ROOT / "tools"
VERSIONS = ("3.13", "3.12", "3.14", "3.11")  # in order of preference
EXTRAS = "notebook,kubernetes"
TEST_TOOLS = ("hypothesis", "pytest", "pytest-timeout", "syrupy")
TESTS = ("tests/core/runtime/kernels/test_kernels.py", "tests/core/backends/local/test_local_backend.py")
SHELL = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for name, line in (("load_ext", "dlrover_nb"), ("dlrover", "help")):
    shell.run_line_magic(name, line)
"""


def other_python() -> str | None:
    """Return another supported Python of this machine."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHON"}
    done = subprocess.run(
        [TOOLS / "find_python.sh", *(version for version in VERSIONS if version != own)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return done.stdout.strip() or None


def build_wheel() -> Path:
    """Build the wheel from a copy of the sources, so that nothing of an earlier build gets into it."""
    source, out = FOLDER / "source", FOLDER / "wheel"
    for folder in (source, out):
        shutil.rmtree(folder, ignore_errors=True)
    without = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "dlrover_nb", source / "dlrover_nb", ignore=without)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", out, source], check=True)
    [wheel] = out.glob("*.whl")
    return wheel


def install(python: str, wheel: Path, extras: str) -> Path:
    """Install the wheel into an environment of this Python, and return the environment's programs."""
    version = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
    programs = FOLDER / f"venv-{version}" / "bin"
    if not (programs / "pip").exists():
        subprocess.run([python, "-m", "venv", programs.parent], check=True)
    # uncompiled, as most of it is never imported here
    pip = [programs / "python", TOOLS / "pip_progress.py", FOLDER / "pip.log", "install", "--no-compile"]
    requests = [f"{wheel}[{extras}]", *TEST_TOOLS]
    subprocess.run([*pip, "-c", ROOT / "constraints.txt", *requests], check=True)
    # pip takes a wheel of the same version for installed
    again = [programs / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", wheel]
    subprocess.run(again, check=True)
    return programs


def check_kernel(programs: Path, wheel: Path) -> None:
    """Load the kernel that the wheel holds."""
    kernel = "numpy" if wheel.name.endswith("-any.whl") else "c"
    load = "from dlrover_nb.core.runtime.kernels import kernel; print('kernel:', kernel().NAME)"
    environment = os.environ | {"DLROVER_NB_KERNEL": kernel}
    subprocess.run([programs / "python", "-c", load], cwd=FOLDER, env=environment, check=True)


def check_faces(programs: Path) -> None:
    """Ask the magics in a shell for help, and the program in a terminal."""
    own = {"IPYTHONDIR": FOLDER / "ipython", "XDG_STATE_HOME": FOLDER / "state"}  # not those of the user
    for command in ([programs / "python", "-c", SHELL], [programs / "dlrover-nb", "help"]):
        subprocess.run(command, cwd=FOLDER, env=os.environ | own, stdout=subprocess.DEVNULL, check=True)


def run_tests(programs: Path) -> int:
    """Run the tests on the installed wheel, and return pytest's exit code."""
    checkout = FOLDER / "checkout"
    shutil.rmtree(checkout, ignore_errors=True)
    shutil.copytree(ROOT / "tests", checkout / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", checkout)
    return subprocess.run([programs / "pytest", "-q", *TESTS], cwd=checkout, check=False).returncode


def main(extras: str = EXTRAS) -> int:
    """Do all of it; without a second Python there is nothing to do."""
    python = other_python()
    if python is None:
        print(f"no second Python here, looked for {', '.join(VERSIONS)}: the wheel is not tried on one")  # noqa: T201 - a script's result
        return 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    wheel = build_wheel()
    programs = install(python, wheel, extras)
    print(f"{wheel.name} on {python}", flush=True)  # noqa: T201 - a script's result
    check_kernel(programs, wheel)
    check_faces(programs)
    return run_tests(programs)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
