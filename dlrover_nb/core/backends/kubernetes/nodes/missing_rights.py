"""Missing rights of a job's master: what is told of them, and when they end the job.

A Role is deleted by mistake, or replaced by a tool that applies a repository. Nodes train without any right,
so a missing one (403) is waited for while a node runs, and the job goes on by itself when it is back. Where
nothing runs, the job makes no progress: then it fails with the reason, soon where no node of it has ever run
(the account never had the right), and late where it has trained (an administrator may be mending it).

To fail at once was rejected: it threw away hours of training for a right that was missing for a minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.api_errors import Forbidden, Unauthorized
from dlrover_nb.core.manifests.pod_parts import master_name

if TYPE_CHECKING:
    from dlrover_nb.core.errors import BackendError
    from dlrover_nb.core.structs.job.job import JobSpec

IDLE_S = 900.0  # of refusals until a job fails none of whose nodes runs any more
NEVER_RAN_S = 60.0  # the same where no node has ever run: rights may just have been granted
RECENT_S = 60.0  # a refusal that did not come again for so long is not told any more


class Refusals:
    """The refusals of one run; not thread-safe.

    Parameters
    ----------
    spec
        The job, whose account it is.
    """

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self._reasons: dict[str, tuple[float, str]] = {}
        self._has_run, self._idle_since_s = False, float("inf")

    def refused(self, what: str, error: BackendError, at_s: float) -> str:
        """Note that `what` was refused; return the reason and what to do."""
        if not self.now(at_s):
            self._idle_since_s = at_s
        why = needed(self._spec, error)
        self._reasons[what] = at_s, why
        return why

    def allowed(self, what: str) -> None:
        """Note that `what` was done."""
        self._reasons.pop(what, None)

    def now(self, at_s: float) -> str:
        """Return what is refused now, and what to do; empty: nothing."""
        recent = [why for noted_s, why in self._reasons.values() if at_s < noted_s + RECENT_S]
        return "; ".join(dict.fromkeys(recent))

    def end_job(self, at_s: float, *, runs: bool) -> bool:
        """Whether what was refused last is the end of the job; `runs`: whether a node of it runs."""
        if runs:
            self._has_run, self._idle_since_s = True, at_s
        return at_s >= self._idle_since_s + (IDLE_S if self._has_run else NEVER_RAN_S)


def is_refusal(error: BackendError | None) -> bool:
    """Whether the API server answers, but not to this account."""
    return isinstance(error, Forbidden | Unauthorized)


def needed(spec: JobSpec, error: BackendError) -> str:
    """Return which right the account of a job's master lacks, and what gives it back.

    No person signs in for a master: credentials that are not accepted are those of an account that is gone.
    Its token is bound to it, so that an account made anew counts once the master has a token of that.
    """
    account = spec.kubernetes.service_account
    if isinstance(error, Unauthorized):
        return (
            f"the API server no longer accepts the account of the job's master ({error.message}); nodes "
            f"train on: restore the ServiceAccount {account or master_name(spec.name)} with its rights; the "
            "job goes on by itself when the master's token is renewed, or in a new pod of the master, which "
            "needs a volume for the job's state"
        )
    if not isinstance(error, Forbidden):
        return str(error)
    lack = f"{error.user or 'the master'} may not {error.operation}"
    role = f"the Role and the RoleBinding {master_name(spec.name)}"
    give = f"give the account {account} that right" if account else f"restore {role}"
    return f"{lack}; {give}, and the job goes on by itself"
