"""Joins a raylet of its own resources to the Ray at an address, on this machine; ends it when stdin is closed.

Ray's command line joins none to a head that stays on the loopback interface; its own test clusters do as here.
"""

import sys

from ray._private import services
from ray._private.node import Node
from ray._private.parameter import RayParams

from dlrover_nb.core.backends.ray.head import LOOPBACK, OBJECT_STORE_BYTES
from dlrover_nb.core.backends.ray.patient_start import raylet_lives, until_registered

address, cpus = sys.argv[1:]
services.get_node = until_registered(services.get_node, raylet_lives)
params = RayParams(
    gcs_address=address,
    node_ip_address=LOOPBACK,
    num_cpus=float(cpus),
    object_store_memory=OBJECT_STORE_BYTES,
    include_log_monitor=False,
    node_manager_port=0,
    min_worker_port=0,
    max_worker_port=0,
    dashboard_agent_listen_port=None,
)
node = Node(params, head=False, shutdown_at_exit=True, spawn_reaper=True)
sys.stdin.read()
node.kill_all_processes(check_alive=False, allow_graceful=True)
