"""A program: two raylets on this machine's loopback, and a job whose roles say with whom they run.

It prints one JSON line: for each node of the job the raylet under which its program ran, and what waited.
"""

from __future__ import annotations

import json
import sys

from ray._private import services
from ray.cluster_utils import Cluster
from support.waiting import LIMIT_S, until

from dlrover_nb.core.backends.ray.patient_start import raylet_lives, until_registered
from dlrover_nb.core.connect import connect
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, FixedRole
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

TELL = "import os, time; print('raylet', os.environ['RAY_RAYLET_PID'], flush=True); time.sleep(10000)"
HERE = {"node_ip_address": "127.0.0.1", "num_cpus": 2, "object_store_memory": 80 << 20}
PLAN = ResourcePlan(RolePlan(2, 0.5, 256), RolePlan(1, 0.5, 256))


def places(handle) -> dict[str, str]:
    """Return the raylet of each program that has begun."""
    said = [line for line in handle.logs(n_line=1000) if line.text.startswith("raylet ")]
    return {line.node: line.text.split()[1] for line in said}


def main() -> None:
    services.get_node = until_registered(services.get_node, raylet_lives)
    machines = Cluster(initialize_head=True, head_node_args=HERE)
    machines.add_node(**HERE)
    cluster = connect("ray", address=machines.address)
    command = (sys.executable, "-c", TELL)
    reader = FixedRole("reader", command, 1, 0.25, 128, together_with=("ps",))
    lonely = FixedRole("lonely", command, 2, 0.25, 128, apart_from=("lonely",))
    third = FixedRole("third", command, 1, 0.25, 128, apart_from=("lonely",))
    roles = (reader, lonely, third)
    worker = ExternalRole(command, apart_from=("ps",))
    spec = ExternalSpec(worker, 1000, ExternalRole(command), roles=roles)
    handle = cluster.submit(JobSpec("placed", plan=PLAN, mode=Mode.MANUAL, foreign=spec))
    try:
        nodes = {"worker-0", "worker-1", "ps-0", "reader-0", "lonely-0", "lonely-1"}
        found = until(lambda: nodes <= places(handle).keys() and places(handle), what=handle.snapshot)
        waits = until(
            lambda: {n.id: n.waits_for for n in handle.snapshot().nodes if n.waits_for}, what="a reason"
        )
        sys.stdout.write(json.dumps({"places": found, "waits": waits}) + "\n")
    finally:
        handle.stop()
        handle.wait(LIMIT_S)
        cluster.shutdown()
        machines.shutdown()


if __name__ == "__main__":
    main()
