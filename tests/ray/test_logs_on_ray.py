"""What nodes on Ray write reaches a client of their job, dead ones included."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from dlrover_nb.core.backends.ray.master import RayLink, RayMaster, create_master
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.data import make_features
from dlrover_nb.core.errors import BackendError, NotFoundError
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan

pytestmark = [pytest.mark.ray, pytest.mark.more]

PLAN = ResourcePlan(RolePlan(1, 0.5, 512), RolePlan(1, 0.4, 256))


class Talkative:
    n_row = 4000

    def read(self, start, stop):
        print(f"reading {start}")  # noqa: T201 - as users do
        logging.getLogger("rows").info("%d rows", stop - start)
        at = np.arange(start, stop)
        return {"label": at % 2, "x": at / 4000, "site": at % 5}


def test_prints_and_last_words_of_nodes_are_there_while_they_live_and_afterwards(
    cluster, wait_until, kill_node
):
    spec = JobSpec(
        "talkative", plan=PLAN, mode=Mode.MANUAL, model=ModelSpec(embedding_dim=2), batch_size=64, n_epoch=400
    )
    handle = cluster.submit(spec, data=Talkative())
    wait_until(lambda: any(line.text == "reading 0" for line in handle.logs(n_line=1000)), what="a print")
    killed = kill_node(handle.snapshot(), Role.WORKER)
    wait_until(lambda: any(f"{killed} was lost" in line for line in handle.snapshot().story), what="the loss")
    levels = {line.text: line.level for line in handle.logs(killed, n_line=1000)}
    assert levels["reading 0"] == "stdout"
    assert "INFO" in {level for text, level in levels.items() if text.startswith("rows: ")}
    with pytest.raises(NotFoundError, match="did you mean"):
        handle.logs("workr-0")
    assert handle.stop().phase is JobPhase.STOPPED
    assert any(line.text == "reading 0" for line in handle.logs(n_line=10_000))


def test_a_master_that_cannot_write_its_run_folder_says_so_to_its_clients(cluster):
    spec = JobSpec("nowhere", plan=PLAN)
    features = make_features(spec.data, spec.model)
    folder = Path("/dev/null/run")
    actor = create_master(RayMaster, "nowhere", to_json(spec), to_json(features), str(folder), one_host=True)
    with pytest.raises(
        BackendError, match=r"job nowhere could not begin: cannot write to /dev/null/run: Not"
    ) as told:
        RayLink("nowhere", actor).snapshot()
    assert len(str(told.value).splitlines()) == 1
