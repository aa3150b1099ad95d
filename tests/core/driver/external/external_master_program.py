"""The master of an external job as a process of its own, which a test may kill and begin again in the same folder.

Its pods are shells that outlive it, as pods do: each leaves its process id and its exit code in a file.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

from support.driver.external_pods_double import LocalPods
from waitress.server import create_server

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.driver.backend import NodeExited
from dlrover_nb.core.driver.calls.service import REPORT_PATH, SERVER, MasterService
from dlrover_nb.core.driver.external import external_job
from dlrover_nb.core.structs.job.job import JobSpec

LEAVE = 'echo $$ > "$0/pid.new" && mv "$0/pid.new" "$0/pid"; "$@" > "$0/log" 2>&1; echo $? > "$0/code.new"; mv "$0/code.new" "$0/code"'


class Left:
    """The process of a pod that may be of an earlier master; fits what `LocalPods` needs of one."""

    def __init__(self, place):
        self.place, self.pid, self.returncode = place, int((place / "pid").read_text()), None

    def poll(self):
        code = self.place / "code"
        if code.exists():
            self.returncode = int(code.read_text())
        elif not alive(self.pid):
            self.returncode = int(code.read_text()) if code.exists() else 137
        return self.returncode


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class DetachedPods(LocalPods):
    """Pods that outlive this process."""

    def __init__(self, folder):
        folder.mkdir(exist_ok=True)
        pids = sorted(folder.glob("*/pid"))
        super().__init__(folder, {path.parent.name: Left(path.parent) for path in pids})

    def run(self, place, command, env):
        process = subprocess.Popen(
            ("/bin/sh", "-c", LEAVE, str(place), *command), env=env, start_new_session=True
        )
        threading.Thread(target=process.wait, daemon=True).start()
        while not (place / "pid").exists():
            threading.Event().wait(0.01)
        return Left(place)

    def stop_node(self, node):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pods[node].pid, signal.SIGKILL)

    def poll(self):
        gone = [n for n, process in self.pods.items() if n not in self._told and process.poll() is not None]
        self._told.update(gone)
        codes = [(node, self.pods[node].returncode) for node in gone]
        return tuple(
            NodeExited(node, f"exit code {code}", failed=0 < code < 128, succeeded=code == 0)
            for node, code in codes
        )

    def close(self):
        for node in self.pods:
            self.stop_node(node)


def main(folder):
    service, reports = MasterService("access"), queue.SimpleQueue()
    server = create_server(service, host="127.0.0.1", port=0, **SERVER)
    threading.Thread(target=server.run, daemon=True).start()
    url = f"http://127.0.0.1:{server.effective_port}{REPORT_PATH}"
    run = folder / "run"
    is_known = (run / "job.json").exists()
    around = external_job.Surroundings(run, f"sqlite:///{folder / 'history.db'}", SystemClock(), url, reports)
    pods = DetachedPods(folder / "pods")
    if is_known:
        driver = external_job.resume(pods, around)
    else:
        driver = external_job.begin(from_json((folder / "spec.json").read_bytes(), JobSpec), pods, around)
    service.take_reports("t", reports.put)
    service.take_calls("t", around.calls)
    driver.start()
    driver.join()
    (folder / "end.new").write_bytes(to_json(driver.snapshot()))
    (folder / "end.new").rename(folder / "end.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
