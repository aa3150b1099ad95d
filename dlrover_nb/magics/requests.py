"""What a line of a magic, or of the command line, asks for: one frozen record per verb."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.client.handle import Until

if TYPE_CHECKING:
    from dlrover_nb.api.sizes import Sizes
    from dlrover_nb.core.structs.job import Mode


@dataclass(frozen=True, slots=True)
class Connect:
    """Go to where jobs run."""

    kind: str
    address: str | None
    cpus: float | None
    machines: int | None = None
    speed: float | None = None
    context: str | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Submit:
    """Start a job: `file` holds YAML, `settings` are (path, value) that win over it; `wait` for its end."""

    file: str | None
    settings: tuple[tuple[str, object], ...]
    wait: bool = False


@dataclass(frozen=True, slots=True)
class Jobs:
    """List jobs."""


@dataclass(frozen=True, slots=True)
class Status:
    """Show a job's state."""

    job: str | None


@dataclass(frozen=True, slots=True)
class Watch:
    """Follow a job live."""

    job: str | None


@dataclass(frozen=True, slots=True)
class Plans:
    """Show a job's open proposal, front and fit."""

    job: str | None


@dataclass(frozen=True, slots=True)
class Why:
    """Say why a plan is proposed, or why none is."""

    job: str | None
    proposal: str | None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Say what another plan would bring."""

    job: str | None
    sizes: Sizes


@dataclass(frozen=True, slots=True)
class Accept:
    """Accept a proposal."""

    job: str | None
    proposal: str | None
    why: str


@dataclass(frozen=True, slots=True)
class Reject:
    """Reject a proposal."""

    job: str | None
    proposal: str | None
    why: str


@dataclass(frozen=True, slots=True)
class Override:
    """Answer a proposal with another plan."""

    job: str | None
    proposal: str | None
    sizes: Sizes
    why: str


@dataclass(frozen=True, slots=True)
class Scale:
    """Change the plan of a running job."""

    job: str | None
    sizes: Sizes
    why: str


@dataclass(frozen=True, slots=True)
class Undo:
    """Take back the latest decision: the one named, or whichever it is."""

    job: str | None
    decision: str | None
    why: str


@dataclass(frozen=True, slots=True)
class Logs:
    """Show what nodes wrote."""

    job: str | None
    node: str | None
    n_line: int


@dataclass(frozen=True, slots=True)
class Pin:
    """Fix parts of every plan to come, beside what is fixed already; `clear` lets go of that first."""

    job: str | None
    sizes: Sizes
    clear: bool
    why: str


@dataclass(frozen=True, slots=True)
class SetMode:
    """Say who decides."""

    job: str | None
    mode: Mode
    why: str


@dataclass(frozen=True, slots=True)
class History:
    """Look back on past runs: of all jobs, of one, or on one run."""

    job: str | None
    run: str | None


@dataclass(frozen=True, slots=True)
class Score:
    """Show how good predictions were."""

    owner: str | None
    days: float | None


@dataclass(frozen=True, slots=True)
class Export:
    """Write a plan for another system."""

    job: str | None
    kind: str
    plan: str
    output: str | None
    force: bool
    auto_scale: bool
    check: bool
    image: str | None
    namespace: str | None


@dataclass(frozen=True, slots=True)
class Import:
    """Read an exported file; `check` only validates, `submit` starts its job, `apply` scales to its plan."""

    file: str
    check: bool
    submit: bool
    apply: bool


@dataclass(frozen=True, slots=True)
class Attach:
    """Get hold of a job that runs already."""

    job: str | None


@dataclass(frozen=True, slots=True)
class Wait:
    """Block until a job has ended, or until it proposes a plan."""

    job: str | None
    timeout_s: float | None
    until: Until = Until.END


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop a job."""

    job: str | None
    why: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a job and what it left."""

    job: str
    force: bool


@dataclass(frozen=True, slots=True)
class Shards:
    """Show a job's account of its rows; `retry` or `skip` decide about a shard that was set aside."""

    job: str | None
    retry: int | None
    skip: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Report:
    """Write a job's report."""

    job: str | None
    output: str
    force: bool


@dataclass(frozen=True, slots=True)
class Predict:
    """Score the rows of a file with a job's model."""

    job: str
    rows: str
    output: str
    force: bool


@dataclass(frozen=True, slots=True)
class Dash:
    """Follow all jobs live."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """End the cluster that we started."""

    force: bool


@dataclass(frozen=True, slots=True)
class Demo:
    """Run the demonstration."""

    out: str


@dataclass(frozen=True, slots=True)
class Help:
    """Explain all verbs, or one."""

    verb: str | None


Request = (
    (Connect | Submit | Jobs | Status | Watch | Plans | Why | WhatIf)
    | (Accept | Reject | Override | Undo | Pin | SetMode | Scale)
    | (Logs | History | Score | Export | Import)
    | (Attach | Wait | Stop | Delete | Shards | Report | Predict | Dash | Shutdown | Demo | Help)
)
