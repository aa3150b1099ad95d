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
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.backends.kubernetes.client.api_errors import Forbidden, Inadmissible
from dlrover_nb.core.backends.kubernetes.master import PodMaster, exit_code_of
from dlrover_nb.core.backends.kubernetes.operator.elastic_plan import plan_in
from dlrover_nb.core.backends.kubernetes.room.cluster_capacity import assumed
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.alone import FOLDER, JOB_FILE
from dlrover_nb.core.export.documents.own_elasticjob import MASTER
from dlrover_nb.core.jobfile import parse_job
from dlrover_nb.core.manifests.kinds import ELASTIC_JOB, JOB, OWNERS, SECRET
from dlrover_nb.core.manifests.objects import NAMESPACE_VAR, companions
from dlrover_nb.core.manifests.pod_parts import VIEW_NOTE, owned_by, run_of, secret_name, view_token
from dlrover_nb.core.runtime.exchange.sockets import new_keys
from dlrover_nb.core.structs.wire.pod_contract import IP_VAR, PodJob

if TYPE_CHECKING:
    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.manifests.kinds import Kind
    from dlrover_nb.core.structs.job.job import JobSpec

logger = logging.getLogger(__name__)

KEY = "job.json"  # of the Secret


def founded(api: Api, spec: JobSpec, kind: Kind = JOB) -> PodJob:
    """Return the job from its Secret; write the Secret first where it is empty.

    Parameters
    ----------
    kind
        Of the object that keeps this pod. An ElasticJob's replicas and resources win over the job file's.

    Raises
    ------
    NotThere
        When that object of the file's name, or the Secret, does not exist.
    """
    owner = api.get(kind, spec.name)
    data = api.get(SECRET, secret_name(spec.name)).get("data") or {}
    if KEY in data:
        return from_json(base64.b64decode(data[KEY]), PodJob)
    template = owner["spec"]
    if kind is ELASTIC_JOB:
        spec = replace(spec, plan=plan_in(owner, spec.plan))
        template = template["replicaSpecs"][MASTER]
    image = template["template"]["spec"]["containers"][0]["image"]
    spec = replace(spec, kubernetes=replace(spec.kubernetes, image=image))  # nodes run what their master runs
    keys = new_keys()
    access = secrets.token_urlsafe(32)
    job = PodJob(spec, None, run_of(owner), keys.public, keys.secret, access, "", assumed(spec), kind.name)
    _let_view(api, kind, job)
    (secret, *_) = companions(job, code={}, namespace=api.namespace)
    change = {"metadata": {"ownerReferences": owned_by(owner)}, "data": secret["data"]}
    api.patch(SECRET, secret_name(spec.name), change)
    logger.info("job %s was started from a file: its keys are created", spec.name)
    return job


def _let_view(api: Api, kind: Kind, job: PodJob) -> None:
    """Note the token of viewers before the keys are written: a master that dies between notes another one."""
    try:
        api.patch(kind, job.spec.name, {"metadata": {"annotations": {VIEW_NOTE: view_token(job)}}})
    except (Forbidden, Inadmissible) as error:  # by an account of the user's own, it may not
        logger.warning("job %s shows itself only to those who may read its Secret: %s", job.spec.name, error)


def job_in_file(path: Path) -> JobSpec:
    """Return the job of a job file; an error is one line."""
    try:
        return parse_job(path.read_text("utf-8"), is_dump=True)
    except OSError as error:
        raise InvalidValueError(f"no job file {path}: {error.strerror}; mount its ConfigMap there") from error


def main(kind: str = JOB.name) -> int:
    """Run this pod's master, which an object of this kind keeps; return the exit code."""

    def start() -> int:
        api = connect_api(namespace=os.environ[NAMESPACE_VAR])
        job = founded(api, job_in_file(Path(FOLDER) / JOB_FILE), OWNERS[kind])
        return PodMaster(job, api, ip=os.environ[IP_VAR]).run()

    return exit_code_of(start, owner=kind)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
