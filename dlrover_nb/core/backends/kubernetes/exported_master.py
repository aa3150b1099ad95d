"""Program of the master's pod of a job that was started from an exported file.

No export contains keys, so the Secret of such a job is empty at first, and the job itself is in the ConfigMap
with its job file. The first master creates the keys and writes the Secret, as a submitting client does. Nodes
start after that and find it, as does a restarted master. From then on the job is like any other.
"""

from __future__ import annotations

import base64
import logging
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.api import connect_api
from dlrover_nb.core.backends.kubernetes.capacity import assumed
from dlrover_nb.core.backends.kubernetes.master import PodMaster
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.errors import DlroverError, InvalidValueError
from dlrover_nb.core.export.alone import FOLDER, JOB_FILE
from dlrover_nb.core.jobfile import parse_job
from dlrover_nb.core.manifests.kinds import JOB, SECRET
from dlrover_nb.core.manifests.objects import NAMESPACE_VAR, companions
from dlrover_nb.core.manifests.parts import owned_by, run_of, secret_name
from dlrover_nb.core.runtime.output import log_lines
from dlrover_nb.core.runtime.wire import new_keys
from dlrover_nb.core.structs.pods import IP_VAR, PodJob

if TYPE_CHECKING:
    from dlrover_nb.core.backends.kubernetes.api import Api
    from dlrover_nb.core.structs.job import JobSpec

logger = logging.getLogger(__name__)

KEY = "job.json"  # of the Secret


def founded(api: Api, spec: JobSpec) -> PodJob:
    """Return the job from its Secret; write the Secret first where it is empty.

    Raises
    ------
    NotThere
        When the Job of the file's name, or its Secret, does not exist.
    """
    owner = api.get(JOB, spec.name)
    found = api.get(SECRET, secret_name(spec.name)).get("data") or {}
    if KEY in found:
        return from_json(base64.b64decode(found[KEY]), PodJob)
    keys = new_keys()
    access = secrets.token_urlsafe(32)
    job = PodJob(spec, None, run_of(owner), keys.public, keys.secret, access, capacity=assumed(spec))
    (secret, *_) = companions(job, code={}, namespace=api.namespace)
    change = {"metadata": {"ownerReferences": owned_by(owner)}, "data": secret["data"]}
    api.patch(SECRET, secret_name(spec.name), change)
    logger.info("job %s was started from a file: its keys are created", spec.name)
    return job


def job_in_file(path: Path) -> JobSpec:
    """Return the job of a job file; an error is one line."""
    try:
        return parse_job(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidValueError(f"no job file {path}: {error.strerror}; mount its ConfigMap there") from error


def main() -> int:
    """Run this pod's master; return the exit code."""
    log_lines()
    try:
        api = connect_api(namespace=os.environ[NAMESPACE_VAR])
        job = founded(api, job_in_file(Path(FOLDER) / JOB_FILE))
        return PodMaster(job, api, ip=os.environ[IP_VAR]).run()
    except DlroverError as error:
        logger.error("%s", error)  # noqa: TRY400 - one line for people
        return 1


if __name__ == "__main__":
    sys.exit(main())
