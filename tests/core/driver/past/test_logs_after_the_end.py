"""Log lines of a job that has ended: in its run folder while that is at hand, else with its last snapshot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.jobs import builders

from dlrover_nb.core.backends.kubernetes.jobs.last_snapshot import (
    MOST_BYTES,
    MOST_LOG_BYTES,
    end_document,
    finished,
)
from dlrover_nb.core.driver.past.finished_job import FinishedJob, pack_lines, unpack_lines
from dlrover_nb.core.errors import NotFoundError, WireError
from dlrover_nb.core.rundir.node_logs import NodeLogs, left_lines
from dlrover_nb.core.structs.decisions.query_answers import LogLine
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec, Volume
from dlrover_nb.core.structs.wire.messages import LinesWritten

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

LAST = builders.snapshot(phase=JobPhase.SUCCEEDED, message="done", ended_at_s=builders.START_S + 300)
LINES = (
    LogLine(1.0, "worker-0", "info", "begins"),
    LogLine(2.0, "ps-0", "info", "holds its part"),
    LogLine(3.0, "worker-0", "stdout", "loss 0.1"),
)


def left_in(folder: Path) -> JobSnapshot:
    """Return the last snapshot of a job that left its lines in a folder."""
    folder.mkdir()
    logs = NodeLogs(folder)
    for line in LINES:
        logs.add(LinesWritten(line.node, (line,), (0, 0)))
    return replace(LAST, folder=str(folder))


def in_pods(*volumes: Volume) -> JobSnapshot:
    """Return the last snapshot of a job in pods, whose folder is not here."""
    spec = replace(LAST.spec, kubernetes=KubernetesSpec(volumes=volumes))
    return replace(LAST, spec=spec, folder="/dlrover-nb/state/quick-start-0123abcd")


def test_the_run_folder_tells_them_while_it_is_at_hand(tmp_path: Path, error_words) -> None:
    job = FinishedJob(left_in(tmp_path / "run"))
    assert job.logs(None, 100) == LINES
    assert job.logs("worker-0", 1) == LINES[-1:]
    with error_words(NotFoundError):
        job.logs("worker-7", 1)


def test_without_it_the_saved_ones_do(tmp_path: Path) -> None:
    lines = left_lines(tmp_path) or LINES
    job = finished(end_document(in_pods(), run="r", namespace="n", lines=lines))
    assert job.logs(None, 100) == LINES
    assert job.logs("ps-0", 100) == LINES[1:2]


def test_where_none_are_left_one_line_says_why_and_where_they_may_be(error_words) -> None:
    for volumes in ((), (Volume("/dlrover-nb/state", claim="s"),)):
        job = finished(end_document(in_pods(*volumes), run="r", namespace="n"))
        with error_words(NotFoundError):
            job.logs(None, 100)


def test_a_document_of_an_earlier_release_has_no_lines_and_a_damaged_one_says_so() -> None:
    document = end_document(in_pods(), run="r", namespace="n", lines=LINES)
    data = document["binaryData"]
    document["binaryData"] = data | {"logs": "AAAA"}
    with pytest.raises(WireError):
        finished(document)
    document["binaryData"] = {"snapshot": data["snapshot"]}
    assert finished(document).snapshot().phase is JobPhase.SUCCEEDED


@given(st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=50)), max_size=200), st.integers(50, 3000))
def test_what_is_saved_fits_and_is_the_newest_of_each_node(given_: list[tuple[str, str]], most: int) -> None:
    lines = tuple(LogLine(float(n), node, "info", text) for n, (node, text) in enumerate(given_))
    kept = unpack_lines(data := pack_lines(lines, most_bytes=most))
    assert len(data) <= most
    for node in "abc":
        mine = [line for line in lines if line.node == node]
        left = [line for line in kept if line.node == node]
        assert left == mine[len(mine) - len(left) :]
    assert list(kept) == sorted(kept, key=lambda line: line.at_s)


def test_no_secret_of_the_job_is_in_the_lines_that_viewers_read() -> None:
    url, variable = "s3://KEY:hunter2hunter2@bucket/run", "HF_TOKEN=swordfish1234"
    spec = replace(LAST.spec, checkpoint_url=url, kubernetes=KubernetesSpec(env=(variable,)))
    lines = (LogLine(1.0, "worker-0", "stdout", f"saves to {url} with swordfish1234"),)
    job = finished(end_document(replace(in_pods(), spec=spec), run="r", namespace="n", lines=lines))
    (line,) = job.logs(None, 10)
    assert line.text.startswith("saves to ")
    assert "hunter2" not in line.text
    assert "swordfish" not in line.text


def test_a_snapshot_and_its_lines_fit_into_one_configmap() -> None:
    assert MOST_BYTES + MOST_LOG_BYTES <= 1000 << 10
