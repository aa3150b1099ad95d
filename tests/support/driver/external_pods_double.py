"""Programs of others as processes of this machine, run as their pods run them."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from pathlib import Path

from waitress.server import create_server

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.driver.backend import NodeExited
from dlrover_nb.core.driver.calls.service import REPORT_PATH, SERVER, MasterService
from dlrover_nb.core.driver.external import external_job
from dlrover_nb.core.master.external.launch.pod_script import program
from dlrover_nb.core.runtime.checkpoints import run_name
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.external import Written
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from support.waiting import LIMIT_S

ROOT = Path(__file__).resolve().parents[3]


class LocalPods:
    """A backend whose pods are shells on this machine; what they hold outlives it, as pods outlive a master."""

    def __init__(self, folder, pods=None):
        self.folder, self.pods = folder, {} if pods is None else pods
        self._told, self._lock, self._lines, self._pumps = set(), threading.Lock(), [], {}

    def capacity(self):
        return Capacity((NodeShape(8.0, 16384),))

    room = capacity

    def listen(self):
        return ""

    def start_node(self, config):
        assert config.node not in self.pods
        place = self.folder / config.node
        place.mkdir(parents=True)
        (place / "master").write_text(config.master)
        foreign = config.spec.foreign
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "DLROVER_NB_CLUSTER": str(place / "cluster"),
            "DLROVER_NB_NODE": config.node,
            "DLROVER_NB_REPORT_TOKEN": "t",
            "DLROVER_NB_REPORT_FILE": str(place / "master"),
        }
        self.pods[config.node] = self.run(place, program(foreign, config.role), env)

    def run(self, place, command, env):
        """Run the command of a pod; return its process."""
        process = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        self._pumps[place.name] = threading.Thread(target=self._pump, args=(place.name, process), daemon=True)
        self._pumps[place.name].start()
        return process

    def _pump(self, node, process):
        for line in process.stdout:
            with self._lock:
                self._lines.append(Written(node, time.time_ns(), line.decode().rstrip("\n")))
        process.stdout.close()

    def addresses(self):
        return {node: f"127.0.0.{10 + i}" for i, node in enumerate(self.pods) if node not in self._told}

    def send_environment(self, node, text):
        self._write(node, "cluster", text)

    def _write(self, node, name, text):
        new = self.folder / node / f"{name}.new"
        new.write_text(text)
        new.replace(self.folder / node / name)

    def follow_logs(self, since_ns):
        pass

    def written(self):
        with self._lock:
            lines, self._lines = self._lines, []
        return tuple(lines)

    def adopt(self, nodes):
        self._told = {node for node in self.pods if node not in nodes}

    def set_master_endpoint(self, endpoint):
        for node in self.pods:
            self._write(node, "master", endpoint)

    def stop_node(self, node):
        kill(self.pods[node])

    def _has_ended(self, node, process):
        """Whether its program has ended, and all that it wrote was read: of one from before, by another."""
        pump = self._pumps.get(node)
        return process.poll() is not None and not (pump and pump.is_alive())

    def poll(self):
        gone = [n for n, process in self.pods.items() if n not in self._told and self._has_ended(n, process)]
        self._told.update(gone)
        codes = [(node, self.pods[node].returncode) for node in gone]
        return tuple(
            NodeExited(node, f"exit code {code}", failed=code > 0, succeeded=code == 0)
            for node, code in codes
        )

    def waiting(self):
        return {}

    def denied(self):
        return ""

    def close(self):
        for process in self.pods.values():
            kill(process)


def kill(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class ForeignJob:
    """A job in a folder of its own, and the HTTP that its master would have."""

    def __init__(self, folder, foreign, *, plan, **changes):
        self.spec = JobSpec("foreign", plan=plan, foreign=foreign, **({"mode": Mode.MANUAL} | changes))
        self.folder, self.pods = folder, {}
        self.service, self.reports = MasterService("access"), queue.SimpleQueue()
        self.service.take_reports("t", self.reports.put)
        self.server = create_server(self.service, host="127.0.0.1", port=0, **SERVER)
        self._serving = threading.Thread(target=self.server.run, daemon=True)
        self._serving.start()
        self.driver = self.new_driver()

    def new_driver(self, *, again=False):
        run = self.folder / "run"
        url = f"http://127.0.0.1:{self.server.effective_port}{REPORT_PATH}"
        history = f"sqlite:///{self.folder / 'history.db'}"
        around = external_job.Surroundings(run, history, SystemClock(), url, self.reports)
        self.service.take_calls("t", around.calls)
        backend = LocalPods(self.folder / "pods", self.pods)
        if again:
            return external_job.resume(backend, around)
        return external_job.begin(self.spec, backend, around)

    @property
    def memory(self):
        """The common prefix of the names of the job's shared memory."""
        return run_name(self.spec.name, self.folder / "run")

    @property
    def now(self):
        return self.driver.snapshot()

    def until(self, condition):
        end = time.monotonic() + LIMIT_S
        while not condition(now := self.now):
            assert not now.phase.is_final, f"{now.phase}: {now.message}"
            assert time.monotonic() < end, (
                f"{now.phase}: {now.message} {now.nodes} {self.driver.logs(None, 20)}"
            )
            time.sleep(0.05)
        return now

    def until_end(self):
        assert self.driver.join(LIMIT_S), self.now
        return self.now

    def scale(self, plan):
        return self.driver.decide(Decision(Verdict.SCALE, "ada", time.time(), plan=plan))

    def close(self):
        self.driver.close()
        for process in self.pods.values():
            kill(process)
        close_server(self.server, self._serving)


def close_server(server, thread):
    """Close a server with all of its connections, in its own thread: another one would take sockets from it."""

    def close():
        for channel in [*server.active_channels.values()]:
            channel.handle_close()
        server.close()

    with contextlib.suppress(OSError):  # it may be awake, and close before it is woken
        server.trigger.pull_trigger(close)
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    server.task_dispatcher.shutdown()


def plan(n_worker=2, n_ps=1):
    return ResourcePlan(RolePlan(n_worker, 0.5, 512), RolePlan(n_ps, 0.25, 512))


def lines_of(job, node=None):
    """Return what programs wrote as JSON."""
    texts = [line.text for line in job.driver.logs(node, 1000)]
    return [json.loads(text) for text in texts if text.startswith("{")]
