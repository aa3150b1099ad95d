"""The model of a job whose run folder a client does not see, as that of a job in pods."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from support.driver.real_job import Job, plan

from dlrover_nb.api import cluster as api
from dlrover_nb.core.backends.kubernetes.jobs.link import KubernetesLink
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.client.link.call_ends import CallHandler
from dlrover_nb.core.client.link.calls import ANSWERS, Failed
from dlrover_nb.core.client.trained_model import load_model
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.data.source import CENSUS_FILE
from dlrover_nb.core.errors import CheckpointError, NotFoundError
from dlrover_nb.core.manifests.kinds import JOB
from dlrover_nb.core.rundir.bundle import pack_checkpoint
from dlrover_nb.core.runtime.node.preflight import validate_job
from dlrover_nb.core.structs.job.job import JobSpec, ModelSpec
from dlrover_nb.core.structs.job.kubernetes import STATE, KubernetesSpec, Volume
from dlrover_nb.core.structs.wire.pod_contract import PodJob
from dlrover_nb.core.usercode import file_of
from dlrover_nb.magics.arguments import GRAMMAR
from dlrover_nb.magics.commands import Commands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.more

KEPT = KubernetesSpec(volumes=(Volume(STATE, claim="state"),))


class Way:
    """An API server with the Secrets of one job, and its master behind it."""

    namespace = "n"

    def __init__(self, job: PodJob, driver: object, **code: bytes) -> None:
        self.job, self.driver = job, driver
        self.code, self.n_asked = code, 0

    def get(self, kind, name):
        if kind is JOB:
            head = {"labels": {"dlrover-nb/run": self.job.run}, "uid": "1-2-3"}
            return {"metadata": head, "spec": {}, "status": {}}
        files = {"job.json": to_json(self.job)} if name.endswith("-job") else self.code
        return {"data": {key: base64.b64encode(data).decode() for key, data in files.items()}}

    def with_short_timeout(self, _limit_s):
        return self

    def list(self, _kind, *, selector):
        assert f"dlrover-nb/job={self.job.spec.name}" in selector
        told = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        head = {
            "name": "m-1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"uid": "1-2-3"}],
        }
        pod = {"metadata": head, "status": told}
        return type("Listing", (), {"items": [pod]})

    def proxy(self, _name, _port, _path, body, _headers, _timeout_s):
        self.n_asked += 1
        return CallHandler(self.driver).answer_packed(body)

    def handle(self) -> JobHandle:
        return JobHandle(self.job.spec.name, KubernetesLink(self, self.job))


def own(columns):
    """Make a small model; pickled by value."""
    from torch import nn  # noqa: PLC0415 - as above

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(columns.n_numeric, 1)

        def forward(self, embedded, dense):
            return self.out(dense).squeeze(1) + embedded.sum((1, 2))

    return Net()


@pytest.fixture(scope="module")
def prepared():
    return validate_job(JobSpec("real", model=ModelSpec(embedding_dim=4)), model=own)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory, prepared) -> Iterator[Job]:
    folder = tmp_path_factory.mktemp("afar")
    job = Job(folder, prepared.features, plan=plan(1, 2, worker_cpu=1.0), model=prepared.spec.model)
    prepared.write(job.folder)
    job.driver.start()
    assert job.until_end().evaluation
    yield job
    job.driver.close()


def way_of(job: Job, prepared, **changes) -> Way:
    (packed,) = prepared.packed
    told = PodJob(replace(job.spec, **changes), job.features, "0a1b2c3d", "public", "own-key", "own-pass")
    return Way(told, job.driver, **{file_of(packed.code): packed.content})


def test_a_model_on_a_volume_of_the_pods_is_sent_by_their_master(ended: Job, prepared) -> None:
    way = way_of(ended, prepared, kubernetes=KEPT)
    assert load_model(way.handle()).evaluate() == load_model(ended.folder).evaluate()
    assert way.n_asked == 1


class Cluster:
    """One whose only job is the one behind `way`."""

    simulated = False
    description = "pods"

    def __init__(self, way: Way) -> None:
        self.way = way

    def job(self, name: str) -> JobHandle:
        if name != "real":
            raise NotFoundError(f"no job {name}")
        return self.way.handle()


def test_the_verb_predicts_with_the_model_of_the_cluster_that_it_is_connected_to(
    ended: Job, prepared, tmp_path: Path
) -> None:
    way = way_of(ended, prepared, kubernetes=KEPT)
    commands = Commands()
    commands.session.cluster = api.Cluster(Cluster(way))
    pq.write_table(pq.read_table(CENSUS_FILE).slice(0, 10), tmp_path / "rows.parquet")
    for name, out in (("real", "far"), (str(ended.folder), "near")):
        commands.run(
            GRAMMAR.parse(["predict", name, str(tmp_path / "rows.parquet"), "-o", str(tmp_path / out)])
        )
    assert pq.read_table(tmp_path / "far") == pq.read_table(tmp_path / "near")
    assert way.n_asked == 1


def test_no_key_of_the_job_is_written_where_its_model_is_loaded(ended: Job, prepared, tmp_path: Path) -> None:
    way = way_of(ended, prepared, kubernetes=KEPT)
    folder = way.handle().fetch_model(tmp_path)
    written = b"".join(path.read_bytes() for path in folder.rglob("*.json"))
    assert b"own-key" not in written
    assert b"own-pass" not in written


def test_a_model_at_a_url_is_read_there_without_a_master(ended: Job, prepared, tmp_path: Path) -> None:
    (tmp_path / "real-0a1b2c3d").symlink_to(ended.folder / "checkpoints")
    way = way_of(ended, prepared, checkpoint_url=f"file://{tmp_path}")
    assert load_model(way.handle()).evaluate() == load_model(ended.folder).evaluate()
    assert way.n_asked == 0


def test_a_job_that_keeps_nothing_says_what_to_do(ended: Job, prepared, error_words) -> None:
    with error_words(NotFoundError):
        load_model(way_of(ended, prepared).handle())


def test_a_master_without_a_checkpoint_says_so(ended: Job, prepared, tmp_path: Path) -> None:
    way = way_of(ended, prepared, kubernetes=KEPT)
    way.driver = type("Driver", (), {"snapshot": lambda _: type("S", (), {"folder": str(tmp_path)})})()
    with pytest.raises(NotFoundError, match="no checkpoint in"):
        load_model(way.handle())


def test_a_model_that_is_too_large_to_be_sent_is_refused_with_the_way_out(ended: Job, error_words) -> None:
    with error_words(CheckpointError):
        pack_checkpoint(ended.folder, most_bytes=1000)


def test_what_a_master_sends_is_verified(ended: Job, prepared) -> None:
    class Liar(Way):
        def proxy(self, *told):
            answer = ANSWERS.unpack(super().proxy(*told))
            assert not isinstance(answer, Failed)
            return ANSWERS.pack(replace(answer, parts=tuple(part[::-1] for part in answer.parts)))

    honest = way_of(ended, prepared, kubernetes=KEPT)
    with pytest.raises(CheckpointError, match="is damaged"):
        load_model(Liar(honest.job, ended.driver, **honest.code).handle())
