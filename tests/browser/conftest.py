import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

import psutil
import pytest
from support.browser.chromium import free_port
from support.waiting import LIMIT_S, until

# What would ask a question over the page: the announcements at the first start, which fetch from the web, and
# the loading screen after 12 seconds, on a busy machine.
QUIET = {
    "disabledExtensions": {
        "@jupyterlab/apputils-extension:announcements": True,
        "@jupyterlab/apputils-extension:splash": True,
    }
}

# Folders of what a test leaves behind, which the next one must not find.
FORGOTTEN = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")


@dataclass(frozen=True)
class Lab:
    """A JupyterLab of our own, on loopback, with folders of its own."""

    address: str
    token: str
    root: Path
    environment: dict[str, str]
    log: Path

    def state(self):
        """Describe the kernels and processes of this JupyterLab, and the last lines of its log."""
        with urlopen(f"{self.address}api/kernels?token={self.token}", timeout=LIMIT_S) as answer:
            kernels = answer.read().decode()
        mine = (f"{each.pid} {' '.join(_words(each)[:9])}" for each in self.family())
        end = self.log.read_text()[-3000:]
        return "\n".join([f"its kernels are {kernels}, its processes", *mine, "its log ends with", end])

    def family(self, word=None):
        """Return the processes that run here: server, kernels, what these have started; or those with a word."""
        return [each for each in psutil.process_iter() if self._has_started(each, word)]

    def _has_started(self, process, word):
        try:
            is_ours = process.environ().get("XDG_STATE_HOME") == self.environment["XDG_STATE_HOME"]
            return is_ours and (word is None or word in process.cmdline())
        except psutil.Error:  # it ended meanwhile, or is not ours
            return False


def _words(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return ["which has ended"]


@pytest.fixture(scope="session")
def jupyter():
    """Start the JupyterLab of all tests: to start it takes seconds of processor time, a notebook in it little."""
    home = Path(tempfile.mkdtemp(prefix="dl"))  # short: unix sockets live below it
    environment = _environment(home)
    port = free_port()
    here = Lab(
        f"http://127.0.0.1:{port}/", secrets.token_hex(16), home / "work", environment, home / "lab.log"
    )
    with here.log.open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}",
             "--ServerApp.port_retries=0", "--allow-root", f"--IdentityProvider.token={here.token}",
             f"--ServerApp.root_dir={here.root}"],
            env=environment, cwd=home, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        until(lambda: _answers(here), "JupyterLab")
        yield here, server.pid
    finally:
        _end([psutil.Process(server.pid)])
        server.wait()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def lab(jupyter):
    """Give one test that JupyterLab; its kernels, and all that was started from it, end with the test."""
    here, server = jupyter
    yield here
    _end_kernels(here)
    if _left(here, server):  # jobs and clusters of a notebook: each kind is ended by its own command first
        for place in ("ray", "local"):
            subprocess.run(
                [sys.executable, "-m", "dlrover_nb.cli", "shutdown", "--force"],
                env=here.environment | {"DLROVER_NB_ADDRESS": place},
                check=False, capture_output=True, timeout=LIMIT_S,
            )  # fmt: skip
        _end(_left(here, server))
    for folder in (here.root, *(Path(here.environment[name]) for name in FORGOTTEN)):
        shutil.rmtree(folder, ignore_errors=True)
    here.root.mkdir()
    _configure(here.environment)


def _left(lab, server):
    return [each for each in lab.family() if each.pid != server]


def _end_kernels(lab):
    """End the sessions that pages have begun, with their kernels."""
    for session in json.loads(_asked(lab, "sessions")):
        _asked(lab, f"sessions/{session['id']}", "DELETE")


def _asked(lab, path, method="GET"):
    request = Request(
        f"{lab.address}api/{path}", method=method, headers={"Authorization": f"token {lab.token}"}
    )
    with urlopen(request, timeout=LIMIT_S) as answer:
        return answer.read()


def _environment(home):
    (home / "work").mkdir()
    environment = os.environ | {
        "HOME": str(home),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_CONFIG_DIR": str(home / "jupyter-config"),
        "JUPYTER_DATA_DIR": str(home / "jupyter"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_CONFIG_HOME": str(home / "config"),
    }
    _configure(environment)
    return environment


def _configure(environment):
    """Write the settings that each test begins with."""
    folder = Path(environment["JUPYTER_CONFIG_DIR"], "labconfig")
    folder.mkdir(parents=True)
    (folder / "page_config.json").write_text(json.dumps(QUIET))


def _answers(lab):
    try:
        return urlopen(f"{lab.address}api?token={lab.token}", timeout=2).status == 200
    except OSError:
        return False


def _end(processes):
    """End processes with their children."""
    family = {child for each in processes if each.is_running() for child in (each, *each.children())}
    for signal in (psutil.Process.terminate, psutil.Process.kill):
        for process in family:
            with suppress(psutil.NoSuchProcess):
                signal(process)
        family = psutil.wait_procs(family, timeout=10)[1]
