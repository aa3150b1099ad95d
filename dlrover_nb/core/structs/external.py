"""The specification of an external job: an image and a command for each role."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check

CONFIG_VAR = "DLROVER_NB_CONFIG"  # names the file with the configuration of the node, for programs of ours
STEP_GROUPS = ("step", "samples", "done", "loss")


class Framework(StrEnum):
    """How the programs of a job discover each other."""

    TENSORFLOW = "tensorflow"  # by TF_CONFIG
    TORCH = "torch"  # by the environment that torchrun and torch.distributed read
    DDP = "ddp"  # by `dlrover_nb.client.elastic`: those who stay go on when others come or go

    @property
    def has_store(self) -> bool:
        """Whether its workers meet at a store, a program of ours that is their one PS."""
        return self is not Framework.TENSORFLOW


class Counting(StrEnum):
    """Whose work a report of a worker counts."""

    OWN = "own"  # its own; every worker reports
    JOB = "job"  # that of all workers; only the first one (chief, rank 0) counts


@dataclass(frozen=True, slots=True)
class ExternalRole:
    """The program of one role.

    Parameters
    ----------
    command
        Program and arguments; they are not given to a shell.
    image
        Image with it; empty: that of the job's ``kubernetes`` group.
    env
        Variables beside those of the ``kubernetes`` group, ``NAME=VALUE`` each.
    """

    command: tuple[str, ...] = ()
    image: str = ""
    env: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for item in self.env:
            if not item.partition("=")[1] or item.startswith("="):
                raise InvalidValueError(f"env must hold NAME=VALUE, got {item!r}")


@dataclass(frozen=True, slots=True)
class ExternalSpec:
    r"""The programs of an external job, and how their work is counted.

    Parameters
    ----------
    worker, ps
        The programs. With torch and ddp the one PS is the rendezvous store, and needs no command.
    n_sample
        Samples to train in all, for progress and forecasts; the program itself decides when it is done. For
        programs that get their rows from the job's master: the rows of all passes.
    framework
        How the programs discover each other.
    chief
        TensorFlow: whether the first worker is the ``chief``, whose end is the end of the job.
    n_process
        Torch: processes that torchrun starts on each worker.
    port
        Where each program listens; with torch the one after it is used too.
    counting
        Whose work a report counts.
    step_log
        Regular expression of a log line about training, for programs that do not report. Named groups:
        ``step`` (number of the step), or no such group where each line is one step; ``samples`` (of one step;
        without it a batch of the job), ``done`` (of the whole job, so far), ``loss``. For example ``step
        (?P<step>\d+) loss (?P<loss>\S+)``.
    """

    worker: ExternalRole
    n_sample: int
    ps: ExternalRole = field(default_factory=ExternalRole)
    framework: Framework = Framework.TENSORFLOW
    chief: bool = True
    n_process: int = 1
    port: int = 2222
    counting: Counting = Counting.OWN
    step_log: str = ""

    def __post_init__(self) -> None:
        _check.at_least("n_sample", self.n_sample, 1, hint="progress is measured by it")
        _check.at_least("n_process", self.n_process, 1)
        _check.at_least("port", self.port, 1024, hint="pods do not run as root")
        _check.at_most("port", self.port, 65534)
        if not self.worker.command:
            raise InvalidValueError("worker needs a command; for example command: [python, /app/train.py]")
        if self.framework is Framework.TENSORFLOW and not self.ps.command:
            raise InvalidValueError(
                "ps needs a command with tensorflow; for example command: [python, /app/train.py]"
            )
        _check_step_log(self.step_log)


def _check_step_log(pattern: str) -> None:
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        raise InvalidValueError(f"step_log must be a regular expression, got {pattern!r}: {error}") from error
    if unknown := sorted(set(groups) - set(STEP_GROUPS)):
        raise InvalidValueError(
            f"step_log has named groups of {', '.join(STEP_GROUPS)}, got {', '.join(unknown)}"
        )


@dataclass(frozen=True, slots=True)
class StepsDone:
    """The work of one program since its start: totals, so that lost or repeated reports do no harm.

    Parameters
    ----------
    node
        Name of its node.
    program
        Distinguishes it from others of the node, and from itself before a restart.
    rank
        Rank among the programs of its node; the iterations of the first one count.
    at_s
        Time by the program's own clock.
    n_iter, n_sample
        Steps, and samples in them.
    n_done
        Samples of the whole job, by the program's own count; None: not reported.
    cpu_s
        CPU time.
    memory_mib
        Resident memory; 0: not known.
    """

    node: str
    program: str
    rank: int = 0
    at_s: float = 0.0
    n_iter: int = 0
    n_sample: int = 0
    n_done: int | None = None
    loss: float | None = None
    cpu_s: float = 0.0
    memory_mib: float = 0.0

    def __post_init__(self) -> None:
        for name in ("rank", "n_iter", "n_sample", "cpu_s", "memory_mib"):
            _check.at_least(name, getattr(self, name), 0)
        for name in ("at_s", "loss"):
            if getattr(self, name) is not None:
                _check.finite(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class Written:
    """A line that a program wrote, by the cluster's clock in nanoseconds."""

    node: str
    at_ns: int
    text: str
