"""The state of a job without its secrets, for what others than its owner read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import Redactor
from dlrover_nb.core.codec import with_texts
from dlrover_nb.core.structs.job.secrets import for_storage, secret_values

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot


def bare_snapshot(snapshot: JobSnapshot) -> JobSnapshot:
    """Return a snapshot with placeholders for the secrets of its job, in the job and in all texts."""
    redactor = Redactor(secret_values(snapshot.spec))
    return with_texts(replace(snapshot, spec=for_storage(snapshot.spec)), redactor.within)
