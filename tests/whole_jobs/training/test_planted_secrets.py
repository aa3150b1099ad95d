"""Secrets of many kinds are planted in a real job, and looked for in all that others than its owner may read."""

from __future__ import annotations

import stat
import time
from typing import Any

import numpy as np
import pytest
import torch
from support.driver.real_job import Job, plan, training_held_at
from torch import nn

from dlrover_nb import trainable
from dlrover_nb.core.backends.kubernetes.jobs.last_snapshot import end_document, end_of
from dlrover_nb.core.basics.redaction import PLACEHOLDER
from dlrover_nb.core.client.past import history_queries
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.runtime.node.preflight import validate_job
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec
from dlrover_nb.core.structs.job.secrets import check_complete
from dlrover_nb.core.structs.views.snapshot import JobSnapshot

pytestmark = pytest.mark.more

PLANTED = "pl4nt3d"
WRITTEN = (  # by the programs of the job, in their outputs
    f"connecting to postgresql://ada:{PLANTED}-url@db/runs",
    f"az://c.blob/x?sv=2024&sig={PLANTED}-sas&se=1",
    f"https://b.s3/x?X-Amz-Signature={PLANTED}-signed",
    f"password={PLANTED}-password",
    f'{{"api_key": "{PLANTED}-key"}}',
    f"Authorization: Bearer {PLANTED}-bearer",
    f"https://hooks.slack.com/services/T0/{PLANTED}-webhook",
    f"ghp_{PLANTED}aaaaaaaaaaaaaaaaaaaa",
    f"the feed wants {PLANTED}-variable",  # known by its value alone
    f"-----BEGIN RSA PRIVATE KEY-----\nMIIE{PLANTED}\n-----END RSA PRIVATE KEY-----",
)
ENV = (f"FEED=anything {PLANTED}-any", f"HF_TOKEN={PLANTED}-variable", "LEVEL=debug")


class Rows:
    """Rows whose reader writes secrets."""

    n_row = 2000

    def read(self, start: int, stop: int) -> dict[str, Any]:
        print("\n".join(WRITTEN), flush=True)  # noqa: T201 - as users do
        print("all was written", flush=True)  # noqa: T201
        at = np.arange(start, stop)
        return {"label": at % 2, "x": np.where(at % 2, 1.0, -1.0), "site": at % 5}


@trainable
class Net(nn.Module):
    def __init__(self, columns: Any) -> None:
        super().__init__()
        self.out = nn.Linear(columns.n_categorical * columns.row_width + columns.n_numeric, 1)

    def forward(self, embedded: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(torch.cat([embedded.flatten(1), dense], 1))
        return out.squeeze(1)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job that ran to its end with secrets at all places."""
    spec = JobSpec(
        "real",
        model=ModelSpec(embedding_dim=2),
        batch_size=50,
        shard_batches=10,
        kubernetes=KubernetesSpec(env=ENV, code_url=f"s3://KEY:{PLANTED}-code@bucket/code"),
    )
    prepared = validate_job(spec, model=Net, data=Rows())
    fields = {
        name: getattr(prepared.spec, name)
        for name in ("model", "data", "batch_size", "shard_batches", "kubernetes")
    }
    job = Job(tmp_path_factory.mktemp("planted"), prepared.features, n_epoch=200, **fields)
    try:
        job.folder.mkdir(mode=0o700, exist_ok=True)
        prepared.write(job.folder)
        with training_held_at(100 * job.features.n_train):
            job.driver.start()
            job.until(lambda now: now.train.done >= 2)
            why = f"s3://KEY:{PLANTED}-why@bucket is slow, and {PLANTED}-variable"
            job.driver.decide(Decision(Verdict.SCALE, "ada", time.time(), plan=plan(worker_cpu=0.6), why=why))
            job.until(lambda _: "all was written" in [line.text for line in job.driver.logs(None, 1000)])
            job.driver.stop("ada", f"token={PLANTED}-stop")
            assert job.until_end().phase is JobPhase.STOPPED
    finally:
        job.driver.close()
    return job


def test_the_history_holds_no_secret(ended: Job) -> None:
    folder = ended.folder.parent
    for path in folder.glob("history.db*"):
        assert PLANTED.encode() not in path.read_bytes()
    run = history_queries.run_history("real", url=ended.history).run
    assert run.spec.kubernetes.env == tuple(f"{name}={PLACEHOLDER}" for name in ("FEED", "HF_TOKEN", "LEVEL"))
    assert run.message.endswith(f"token={PLACEHOLDER}")


def test_logs_hold_no_secret(ended: Job) -> None:
    texts = [line.text for line in ended.driver.logs(None, 1000)]
    assert texts.count("all was written")
    assert not any(PLANTED in text for text in texts)
    for path in (ended.folder / "logs").iterdir():
        assert PLANTED.encode() not in path.read_bytes()


def test_what_keeps_secrets_is_for_its_owner_alone(ended: Job) -> None:
    files = [path for path in ended.folder.rglob("*") if path.is_file()]
    holding = {path.name for path in files if PLANTED.encode() in path.read_bytes()}
    assert "job.json" in holding  # pods are made from it
    assert not stat.S_IMODE(ended.folder.stat().st_mode) & 0o077


def test_the_last_snapshot_of_an_ended_job_holds_no_secret(ended: Job) -> None:
    last = ended.now
    assert PLANTED.encode() in to_json(last)
    kept = end_of(end_document(last, run="r", namespace="n"))
    assert isinstance(kept, JobSnapshot)
    assert PLANTED.encode() not in to_json(kept)
    assert kept.nodes == last.nodes
    assert kept.samples_per_s == last.samples_per_s


def test_a_stored_job_cannot_be_submitted_before_its_secrets_are_set(ended: Job) -> None:
    kept = end_of(end_document(ended.now, run="r", namespace="n"))
    with pytest.raises(InvalidValueError, match=r"kubernetes.code_url, kubernetes.env FEED") as refused:
        check_complete(kept.spec)
    assert PLACEHOLDER in str(refused.value)
    with pytest.raises(InvalidValueError, match="none is stored"):
        validate_job(kept.spec, model=Net, data=Rows())
    check_complete(ended.now.spec)
