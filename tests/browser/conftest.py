import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest
from chromium import free_port
from waiting import LIMIT_S, until

# What would ask a question over the page: the announcements at the first start, which fetch from the web, and
# the loading screen after 12 seconds, on a busy machine.
QUIET = {
    "disabledExtensions": {
        "@jupyterlab/apputils-extension:announcements": True,
        "@jupyterlab/apputils-extension:splash": True,
    }
}


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
        mine = filter(None, map(self._told, psutil.process_iter()))
        end = self.log.read_text()[-3000:]
        return "\n".join([f"its kernels are {kernels}, its processes", *mine, "its log ends with", end])

    def _told(self, process):
        try:
            if process.environ().get("XDG_STATE_HOME") != self.environment["XDG_STATE_HOME"]:
                return ""
            return f"{process.pid} {process.status()} {' '.join(process.cmdline()[:9])}"
        except psutil.Error:  # it ended meanwhile, or is not ours
            return ""


@pytest.fixture
def lab():
    """Start JupyterLab, and end it with all that was started from it."""
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
            env=environment, cwd=here.root, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        until(lambda: _answers(here), "JupyterLab")
        yield here
    finally:
        _end(psutil.Process(server.pid))
        server.wait()
        for place in ("ray", "local"):  # what a notebook started, where the test failed before it ended that
            subprocess.run(
                [sys.executable, "-m", "dlrover_nb.cli", "shutdown", "--force"],
                env=environment | {"DLROVER_NB_ADDRESS": place},
                check=False, capture_output=True, timeout=LIMIT_S,
            )  # fmt: skip
        shutil.rmtree(home, ignore_errors=True)


def _environment(home):
    config = home / "config"
    (config / "labconfig").mkdir(parents=True)
    (config / "labconfig" / "page_config.json").write_text(json.dumps(QUIET))
    (home / "work").mkdir()
    return os.environ | {
        "HOME": str(home),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_CONFIG_DIR": str(config),
        "JUPYTER_DATA_DIR": str(home / "jupyter"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_CONFIG_HOME": str(home / "config"),
    }


def _answers(lab):
    try:
        return urlopen(f"{lab.address}api?token={lab.token}", timeout=2).status == 200
    except OSError:
        return False


def _end(server):
    """End the server and its kernels; Ray has a session of its own and is ended by its own command."""
    family = [server, *server.children()]
    for process in family:
        process.terminate()
    for process in psutil.wait_procs(family, timeout=10)[1]:
        process.kill()
