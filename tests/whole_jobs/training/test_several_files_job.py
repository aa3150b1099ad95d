"""Real jobs on several files: every row once, also where workers die, and one line where the files change."""

from __future__ import annotations

import gzip
import io
import os
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from support.driver.real_job import plan, succeeded, training_held_at

from dlrover_nb.core.data import make_features
from dlrover_nb.core.data.source import CENSUS_CODES, CENSUS_FILE
from dlrover_nb.core.structs.job.job import DataSpec, JobPhase, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.driver.real_job import Job

pytestmark = pytest.mark.release

N_FILE = 7


def write_parts(folder: Path) -> DataSpec:
    """Write the census rows to files of uneven lengths, some of them compressed, one without rows."""
    table = pq.read_table(CENSUS_FILE)
    ends = [0, 1, 30_000, 30_000, 30_777, 65_536, 90_001, table.num_rows]
    folder.mkdir()
    for i in range(N_FILE):
        sink = io.BytesIO()
        pacsv.write_csv(table.slice(ends[i], ends[i + 1] - ends[i]), sink)
        path = folder / f"part-{i}.csv"
        if i % 2:
            path.with_suffix(".csv.gz").write_bytes(gzip.compress(sink.getvalue(), 1))
        else:
            path.write_bytes(sink.getvalue())
    names = [name for name in table.column_names if name != "label"]
    numeric = tuple(n for n in names if n not in CENSUS_CODES and _is_number(table.schema.field(n).type))
    ids = tuple(n for n in names if n not in numeric)
    return DataSpec(DataFormat.CSV, str(folder), numeric=numeric, categorical=ids)


def _is_number(kind: object) -> bool:
    return str(kind).startswith(("int", "uint", "float", "double"))


def test_every_row_of_several_files_is_trained_once_though_workers_die(
    tmp_path: Path, start: Callable[..., Job]
) -> None:
    data = write_parts(tmp_path / "parts")
    features = make_features(data, ModelSpec())
    assert (len(features.files), features.n_train) == (N_FILE, 99_000)
    job = start(features, data=data, plan=plan(2, 1), n_epoch=2)
    with training_held_at(99_000):
        job.until(lambda now: now.train.done > 5)
        first = job.kill(Role.WORKER)
        job.until(
            lambda now: first not in {node.id for node in now.nodes if node.pid} and now.train.done > 10
        )
        job.until(lambda now: any(node.role is Role.WORKER and node.pid for node in now.nodes))
        job.kill(Role.WORKER)
    succeeded(job)


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder over HTTP, without a log."""

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


def test_a_job_on_a_folder_behind_a_url_trains_its_rows(tmp_path: Path, start: Callable[..., Job]) -> None:
    data = write_parts(tmp_path / "parts")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=data.path)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            data = replace(data, path=f"http://127.0.0.1:{server.server_port}/")
            features = make_features(data, ModelSpec())
            assert len(features.files) == N_FILE
            succeeded(start(features, data=data, plan=plan(2, 1)))
        finally:
            server.shutdown()
            thread.join()


def test_a_job_whose_file_changes_under_it_fails_with_the_file_and_what_to_do(
    tmp_path: Path, start: Callable[..., Job]
) -> None:
    data = write_parts(tmp_path / "parts")
    features = make_features(data, ModelSpec())
    job = start(features, data=data, plan=plan(1, 1), n_epoch=200)
    job.until(lambda now: now.train.done > 2)
    path = tmp_path / "parts" / "part-6.csv"
    new = path.with_suffix(".new")
    new.write_text(path.read_text().rstrip().rpartition("\n")[0])  # without its last row
    os.replace(new, path)  # noqa: PTH105 - as tools that write data do
    end = job.until_end()
    assert end.phase is JobPhase.FAILED
    assert "part-6.csv has changed since the job was submitted" in end.message
