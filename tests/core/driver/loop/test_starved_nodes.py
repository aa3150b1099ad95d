"""The loop of a job reads from its host whether silent nodes are starved, and loses no healthy one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.driver.driver_world import DriverWorld

from dlrover_nb.core.driver.own import own_inputs
from dlrover_nb.core.runtime.process.cpu_waits import SilentWaits

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 60  # of silence, twice the limit


@pytest.mark.parametrize("starved", [True, False])
def test_a_silent_parameter_server_is_replaced_only_where_its_host_let_it_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, starved: bool
) -> None:
    proc = tmp_path / "proc"
    monkeypatch.setattr(own_inputs, "SilentWaits", lambda: SilentWaits(proc))
    monkeypatch.setattr(own_inputs, "gethostname", lambda: "host")  # of the played nodes
    job = DriverWorld(tmp_path)
    job.start()
    now = job.until(lambda now: now.running and now.train.n_sample_done)
    pids = {node.id: node.pid for node in now.nodes}
    schedstat = proc / str(pids["ps-0"]) / "task" / "1" / "schedstat"
    schedstat.parent.mkdir(parents=True)
    job.frozen.add("ps-0")
    for second in range(SECONDS):
        schedstat.write_text(f"0 {second * starved * 10**9} 0")
        if "ps-0" not in {node.id for node in job.pass_time(1.0).nodes}:
            break
    assert ("ps-0" in {node.id for node in job.now.nodes}) is starved
    assert job.story_has("host host is too busy for its nodes to answer in time: ps-0 got no") is starved
    assert job.story_has("ps-0 was lost: it sent no report for 3") is not starved
    job.frozen.clear()
    end = job.until_end()
    assert end.train.n_sample_done == end.train.n_sample_total
    job.close()
