"""The model of a job in pods, for a client without their files: a rebuilt run folder.

The job is in its Secrets, so no running master is needed where checkpoints are kept at a URL that the client
reads too. Where they are on a volume of the pods, the master sends the newest one.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.core.manifests.kinds import SECRET
from dlrover_nb.core.manifests.pod_parts import code_name, has_code
from dlrover_nb.core.rundir.bundle import lay_out
from dlrover_nb.core.rundir.job_file import JobFile, write_job
from dlrover_nb.core.runtime.pod.staging import receive
from dlrover_nb.core.structs.wire.pod_contract import keeps_checkpoints, run_name, storage_advice

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.rundir.bundle import CheckpointBundle
    from dlrover_nb.core.structs.wire.pod_contract import PodJob


def make_run_folder(api: Api, job: PodJob, into: Path, ask: Callable[[], CheckpointBundle]) -> Path:
    """Return a folder below `into` with the files that a model is loaded from.

    Parameters
    ----------
    api
        The API server, at the job's namespace.
    job
        The job, from its Secret.
    ask
        Requests the newest checkpoint from the master.

    Raises
    ------
    NotFoundError
        When the job keeps no checkpoints, or has not saved one.
    CheckpointError, BackendError
        When it cannot be obtained.
    """
    spec = job.spec
    if not keeps_checkpoints(spec):
        raise NotFoundError(f"job {spec.name} has no checkpoint to load: {storage_advice(spec)}")
    if job.features is None:
        raise NotFoundError(f"job {spec.name} has no checkpoint yet; wait until it has saved one")
    folder, secret = into / run_name(spec.name, job.run), into / "secret"
    secret.mkdir()
    if has_code(job):
        for name, content in api.get(SECRET, code_name(spec.name))["data"].items():
            (secret / name).write_bytes(base64.b64decode(content))
    receive(spec, folder, url=job.code_url, mounted=secret)
    if not spec.checkpoint_url:
        lay_out(ask(), folder)
    write_job(folder, JobFile(spec, job.features, 0.0, "", job.public_key, ""))
    return folder
