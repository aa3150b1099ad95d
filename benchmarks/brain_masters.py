"""Many masters behind one HTTP server, of simulated jobs in auto mode: a process for `brain.py`.

Each job has the service of a real master (token, rights, calls as bytes); the header ``X-Job`` names it. The
first line of the output says where they are.
"""

from __future__ import annotations

import json
import secrets
import sys
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from dlrover_nb.core.client.link.calls import ANSWERS
from dlrover_nb.core.connect import connect
from dlrover_nb.core.driver.calls.service import MasterService
from dlrover_nb.core.structs.decisions.call_rights import BY_TOKEN_ALONE
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode

if TYPE_CHECKING:
    from collections.abc import Iterable

JOB_SECONDS = 1500.0  # of all jobs together that are simulated in a second: one process keeps up with them


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 512


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def main(n_job: int) -> None:
    machines = max(n_job // 12, 2)
    cluster = connect("sim", machines=machines, speed=JOB_SECONDS / n_job)
    access = secrets.token_hex(16)
    services: dict[str, MasterService] = {}
    for i in range(n_job):
        spec = JobSpec(f"job-{i}", mode=Mode.AUTO, n_epoch=100_000, owner=f"team-{i % 20}")
        service = services[spec.name] = MasterService(access, BY_TOKEN_ALONE)
        service.serve(cluster.submit(spec).link)  # type: ignore[arg-type]

    def application(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        lists = {"/live": cluster.live_jobs, "/jobs": cluster.jobs}
        if (summaries := lists.get(environ["PATH_INFO"])) is not None:
            body = json.dumps([ANSWERS.pack(each).hex() for each in summaries()]).encode()
            start("200 OK", [("Content-Length", str(len(body)))])
            return [body]
        return services[environ["HTTP_X_JOB"]](environ, start)

    server = Server(("127.0.0.1", 0), Quiet)
    server.set_app(application)
    shape = cluster.capacity().shapes[0]
    told = {"port": server.server_port, "access": access, "shape": [shape.cpu, shape.memory_mib, shape.count]}
    print(json.dumps(told), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
