"""A job whose nodes are pods, and the configurations of these nodes."""

from __future__ import annotations

from dlrover_nb.core.structs.data.features import CategoricalColumn, FeatureSpec
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.node_config import NodeConfig
from dlrover_nb.core.structs.wire.pod_contract import PodJob

FEATURES = FeatureSpec("label", (), (CategoricalColumn("c", 0, 64),), n_train=100, n_eval=10)
SEEN = Capacity((NodeShape(4.0, 8192, 2),))
JOB = PodJob(JobSpec("conform"), FEATURES, "0a1b2c3d", "p" * 40, "s" * 40, "", capacity=SEEN)


def config(node):
    return NodeConfig(
        node=node,
        role=Role.PS,
        spec=JOB.spec,
        features=FEATURES,
        cpu=0.25,
        memory_mib=256,
        master="tcp://10.1.2.3:7070",
        listen="tcp://10.1.2.3",
        folder="/nowhere",
        public_key="",
        secret_key="",
    )
