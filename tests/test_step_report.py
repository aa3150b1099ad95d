"""The reporting client, as a program of its own that has nothing but this one file."""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.waiting import LIMIT_S

import dlrover_nb.client.steps
from dlrover_nb import report
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.structs.job.external import StepsDone

FILE = Path(dlrover_nb.client.steps.__file__)


@pytest.fixture
def master():
    """A server in the place of the master: it keeps what it hears, and refuses the first `n_refuse`."""
    heard = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            is_heard = server.n_refuse == 0  # decided before the answer: the next word may follow it at once
            if is_heard:
                heard.append((self.headers["X-Dlrover-Report"], body))
            else:
                server.n_refuse -= 1
            self.send_response(204 if is_heard else 500)
            self.end_headers()
            if is_heard:
                server.came.set()

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.heard, server.n_refuse, server.came = heard, 0, threading.Event()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def run(tmp_path, program, *, url="", **env):
    """Run a program beside a copy of the client."""
    text = FILE.read_text()
    assert "_LIMIT_S = 2.0" in text
    (tmp_path / "tell.py").write_text(text.replace("_LIMIT_S = 2.0", f"_LIMIT_S = {LIMIT_S}"))
    (tmp_path / "url").write_text(url)
    told = {
        "DLROVER_NB_NODE": "worker-1",
        "DLROVER_NB_REPORT_TOKEN": "t",
        "DLROVER_NB_REPORT_FILE": str(tmp_path / "url"),
    }
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-c",
            f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom tell import step\n{program}",
        ],
        env=told | env,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def newest(master):
    """Return the word that tells most: one that was on its way at the end may come last."""
    return max(master.heard, key=lambda each: each[1]["n_iter"])


def address(server):
    return f"http://127.0.0.1:{server.server_port}/v1/report\n"


def test_the_last_word_of_a_program_holds_all_that_it_did(tmp_path, master):
    run(tmp_path, "for n in range(7): step(samples=32, loss=n / 2)", url=address(master), LOCAL_RANK="1")
    token, last = newest(master)
    assert token == "t"
    assert (last["node"], last["rank"], last["n_iter"], last["n_sample"]) == ("worker-1", 1, 7, 224)
    assert (last["loss"], last["n_done"]) == (3.0, None)
    assert last["memory_mib"] > 1
    assert {body["program"] for _, body in master.heard} == {last["program"]}


def test_a_word_that_was_lost_is_made_up_for(tmp_path, master):
    master.n_refuse = 1
    run(tmp_path, "step(10)\nstep(10, done=500, steps=4)", url=address(master))
    _, last = newest(master)
    assert (last["n_iter"], last["n_sample"], last["n_done"]) == (5, 20, 500)


def test_where_no_master_is_nothing_happens(tmp_path):
    run(tmp_path, "step(10)", url="http://127.0.0.1:9/v1/report")
    run(tmp_path, "step(10)", url="no url")
    run(tmp_path, "step(10)", DLROVER_NB_REPORT_TOKEN="")
    run(tmp_path, "step(10)", DLROVER_NB_REPORT_FILE="/nowhere")


def test_a_mistake_in_a_report_does_not_end_the_training(tmp_path, master):
    program = "step('many', loss='low')\nstep(5, loss=float('nan'))\nstep(5, loss=float('inf'))"
    run(tmp_path, program, url=address(master), LOCAL_RANK="first")
    assert master.heard == []
    run(tmp_path, program, url=address(master))
    assert (newest(master)[1]["n_sample"], newest(master)[1]["loss"]) == (10, None)


def test_a_fork_counts_for_itself(tmp_path, master):
    program = "import os\nif os.fork() == 0: step(1); raise SystemExit(0)\nstep(10)\nos.wait()"
    run(tmp_path, program, url=address(master))
    assert {body["n_sample"] for _, body in master.heard} == {1, 10}
    assert len({body["program"] for _, body in master.heard}) == 2


def test_a_fork_of_a_program_that_reports_ends_as_it_would(tmp_path, master):
    program = (
        "import os\nstep(10)\nfor n in range(20):\n  if os.fork() == 0: raise SystemExit(0)\n  os.wait()"
    )
    run(tmp_path, program, url=address(master))
    assert newest(master)[1]["n_sample"] == 10


def test_a_report_is_what_the_master_understands(tmp_path, master):
    run(tmp_path, "step(10, loss=0.5)", url=address(master))
    told = from_json(json.dumps(newest(master)[1]), StepsDone)
    assert (told.node, told.n_iter, told.n_sample, told.loss) == ("worker-1", 1, 10, 0.5)


def test_it_has_its_first_name_too():
    assert report.step is dlrover_nb.client.steps.step
