"""What a node reports of its failure holds no secret of its job, whether by form or by value."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from support.master.master_world import spec

from dlrover_nb.core.basics.redaction import PLACEHOLDER
from dlrover_nb.core.runtime.node.node import _report_failures
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec

SECRET = "pl4nt3d-variable"


def test_a_failed_node_reports_no_secret() -> None:
    job = replace(spec(), kubernetes=KubernetesSpec(env=(f"HF_TOKEN={SECRET}",)))
    config: Any = SimpleNamespace(node="worker-0", spec=job)
    sent: list[Any] = []
    agent: Any = SimpleNamespace(send_output=lambda: None, send=sent.append)
    with pytest.raises(RuntimeError), _report_failures(agent, config):
        raise RuntimeError(f"the hub refused {SECRET}, and s3://KEY:pl4nt3d-url@bucket too")
    (failed,) = sent
    redacted = f"RuntimeError: the hub refused {PLACEHOLDER}, and s3://{PLACEHOLDER}@bucket too"
    assert failed.why == redacted
