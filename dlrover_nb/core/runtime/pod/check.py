"""Try a user's code in a pod without rights: ``python -m dlrover_nb.core.runtime.pod.check``.

A master may create pods, and so may whoever runs code in its container. Where a client cannot read the rows,
the code would have to be tried there. So it is tried here, in a pod with the image, the mounts and the size
of a worker's and without an account, and the master hears no more than the result.
"""

from __future__ import annotations

import logging
import os
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.runtime.node.preflight import validate_packed_job
from dlrover_nb.core.runtime.pod.pod import read_pod_job, write_end_message
from dlrover_nb.core.runtime.pod.staging import receive
from dlrover_nb.core.runtime.process.output import log_lines
from dlrover_nb.core.structs.wire.pod_contract import (
    CHECK_HEADER,
    FOLDER_VAR,
    MASTER_FILE,
    CodeTried,
    check_token,
)

if TYPE_CHECKING:
    from dlrover_nb.core.structs.wire.pod_contract import PodJob

_log = logging.getLogger(__name__)

TELL_LIMIT_S = 30.0  # for the master's answer


def tried(job: PodJob, folder: Path) -> CodeTried:
    """Return what comes of a job's data and code; `folder` takes the code."""
    try:
        receive(job.spec, folder, url=job.code_url)
        spec, features = validate_packed_job(job.spec, folder, has_first=job.first is not None)
    except DlroverError as error:
        return CodeTried(error=str(error))
    return CodeTried(features=features, n_dense=spec.model.n_dense, averages=spec.model.averages)


def tell(job: PodJob, result: CodeTried, url: str) -> None:
    """Tell the job's master; raises OSError where it cannot be reached, or refuses."""
    head = {CHECK_HEADER: check_token(job), "Content-Type": "application/json"}
    request = urllib.request.Request(url, to_json(result), head)  # noqa: S310 - of the pod's own annotation
    with urllib.request.urlopen(request, timeout=TELL_LIMIT_S) as answer:  # noqa: S310 - as above
        answer.read()


def main() -> int:
    """Try the code of this pod's job; return the exit code."""
    log_lines()
    try:
        job = read_pod_job()
        tell(job, tried(job, Path(os.environ[FOLDER_VAR])), Path(MASTER_FILE).read_text().strip())
    except Exception as error:  # noqa: BLE001 - the pod's status tells of any; a user's code may raise all
        _log.exception("%s", write_end_message(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
