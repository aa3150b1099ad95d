"""The specification of an external job: an image and a command for each role."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import BareRepr, redact, redact_words, shown
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.plan.resources import ROLE_NAME, Role, RolePlan

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIG_VAR = "DLROVER_NB_CONFIG"  # names the file with the configuration of the node, for programs of ours
STEP_GROUPS = ("step", "samples", "done", "loss")
CHIEF, EVALUATOR = Role("chief"), Role("evaluator")  # with a meaning of their own; other names have none
_STARTER = re.compile(r"(.*/)?(python[\d.]*|torchrun|bash|sh|java)")  # programs that start others
_RESERVED: dict[str, str] = {  # names that roles cannot have, and why
    **dict.fromkeys(Role, "has a group of its own (external.worker, external.ps)"),
    "master": "is the job's own master; call the first of its programs chief",
    "check": "is the pod that tries a job's code",
}


class Framework(StrEnum):
    """How the programs of a job discover each other."""

    TENSORFLOW = "tensorflow"  # by TF_CONFIG
    TORCH = "torch"  # by the environment that torchrun and torch.distributed read
    DDP = "ddp"  # by `dlrover_nb.client.elastic`: those who stay go on when others come or go

    @property
    def has_store(self) -> bool:
        """Whether its workers meet at a store, a program of ours that is their one PS."""
        return self is not Framework.TENSORFLOW

    @property
    def keeps_store(self) -> bool:
        """Whether no plan changes that store, as workers stay that have met there."""
        return self is Framework.DDP


class Counting(StrEnum):
    """Whose work a report of a worker counts."""

    OWN = "own"  # its own; every worker reports
    JOB = "job"  # that of all workers; only the first one (chief, rank 0) counts


def command_words(text: str) -> tuple[str, ...]:
    """Return program and arguments of a command line.

    Raises
    ------
    InvalidValueError
        Where a shell would do more than split it into words, or a quote is not closed. A shell is not put
        between: it would not pass on the signal that asks a program to save.
    """
    (bare,) = redact_words([text])
    unquoted = re.sub(r"\\.|'[^']*'", "", text)
    if re.search(r"[$`]", unquoted) or re.search(r"[();<>|&]", re.sub(r'"[^"]*"', "", unquoted)):
        raise InvalidValueError(
            f"command runs without a shell, got {shown(bare)}; where you need a shell for "
            "$ ` | & ; < > ( ), write command: [sh, -c, 'exec ...']"
        )
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise InvalidValueError(f"command must have all of its quotes closed, got {shown(bare)}") from error


def check_command(command: Sequence[object]) -> None:
    """Refuse a list with a whole command line as its one item, else taken for a program."""
    line = command[0] if len(command) == 1 else None
    if isinstance(line, str) and len(words := line.split()) > 1 and _STARTER.fullmatch(words[0]):
        bare = redact_words(words)
        raise InvalidValueError(
            f"command must have one item for each word, got [{' '.join(bare)!r}]; write command: "
            f"[{', '.join(bare)}], or the text without brackets"
        )


@dataclass(frozen=True, slots=True, repr=False)
class ExternalRole(BareRepr):
    """The program of one role.

    Parameters
    ----------
    command
        Program and arguments; they are not given to a shell.
    image
        Image with it; empty: that of the job's ``kubernetes`` group.
    env
        Variables beside those of the ``kubernetes`` group, ``NAME=VALUE`` each.
    together_with
        Roles of which a node must run on each machine where one of this role does.
    apart_from
        Roles of which no node may run on such a machine; with the own name, each has one for itself.
    """

    command: tuple[str, ...] = ()
    image: str = ""
    env: tuple[str, ...] = ()
    together_with: tuple[str, ...] = ()
    apart_from: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check.settings("env", self.env)
        for item in (*self.command, *self.env):
            if "\0" in item:
                where = item.partition("=")[0] if item in self.env else redact(item)
                raise InvalidValueError(
                    f"a program takes no NUL character, got one in {shown(where)}; leave it out"
                )


@dataclass(frozen=True, slots=True, repr=False)
class FixedRole(BareRepr):
    """A role beside worker and PS: its program, and how many nodes always run it, whatever the plan is.

    Parameters
    ----------
    name
        Lower-case letters and digits. A ``chief`` is the first of those that train, an ``evaluator`` reads
        their checkpoints; other names mean nothing to frameworks.
    command, image, env, together_with, apart_from
        As of `ExternalRole`.
    count, cpu, memory_mib, gpu
        Its nodes, and what each of them may use.
    ends_job
        Whether the job waits for the end of these programs, and then ends those that it does not wait for.
        None: for a chief alone.
    """

    name: str
    command: tuple[str, ...]
    count: int = 1
    cpu: float = 0.5
    memory_mib: int = 1024
    image: str = ""
    env: tuple[str, ...] = ()
    ends_job: bool | None = None
    together_with: tuple[str, ...] = ()
    apart_from: tuple[str, ...] = ()
    gpu: int = 0

    def __post_init__(self) -> None:
        if ROLE_NAME.fullmatch(self.name) is None:
            raise InvalidValueError(
                f"a role's name must be at most 20 lower-case letters and digits, got {self.name!r}; for "
                "example name: evaluator"
            )
        if why := _RESERVED.get(self.name, ""):
            raise InvalidValueError(f"a role cannot be named {self.name}, which {why}")
        if not self.command:
            raise InvalidValueError(
                f"role {self.name} needs a command; for example command: [python, /app/{self.name}.py]"
            )
        if self.role in {CHIEF, EVALUATOR} and self.count != 1:
            raise InvalidValueError(f"a job has at most one {self.name}, got count: {self.count}")
        object.__setattr__(self, "cpu", self.plan.cpu)

    @property
    def role(self) -> Role:
        """Its name as a role."""
        return Role(self.name)

    @property
    def plan(self) -> RolePlan:
        """Its nodes."""
        return RolePlan(self.count, self.cpu, self.memory_mib, self.gpu)

    @property
    def program(self) -> ExternalRole:
        """Its program."""
        return ExternalRole(self.command, self.image, self.env, self.together_with, self.apart_from)

    @property
    def is_awaited(self) -> bool:
        """Whether the job ends only after its programs have."""
        return self.role is CHIEF if self.ends_job is None else self.ends_job


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
        TensorFlow: whether the first worker is the ``chief``, whose end is the end of the job; not where a
        role of that name is.
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
    roles
        Roles beside worker and PS.
    dynamic_workers
        TensorFlow: whether each worker knows the PS, the chief and itself alone, so that workers come and go
        without a restart of the others. For workers that train asynchronously, each in a session of its own;
        a coordinator that has to know all workers needs the others' restart.
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
    roles: tuple[FixedRole, ...] = ()
    dynamic_workers: bool = False

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
        names = [each.name for each in self.roles]
        if len(set(names)) < len(names):
            raise InvalidValueError(f"each of the roles has a name of its own, got {', '.join(names)}")
        if self.dynamic_workers and self.framework is not Framework.TENSORFLOW:
            raise InvalidValueError(
                f"dynamic_workers is for tensorflow, got framework {self.framework}; leave it out: ddp needs "
                "none, and all torch programs restart"
            )
        if CHIEF in names and self.framework is Framework.DDP:
            raise InvalidValueError(
                "a ddp job has no chief: any of its workers may leave, and rank 0 is the first of those that "
                "stay; make the chief's program the workers'"
            )
        self._check_placement()

    @property
    def world(self) -> tuple[Role, ...]:
        """The roles that train together and know each other, the first one first."""
        return (*(CHIEF for each in self.roles if each.role is CHIEF), *Role)

    @property
    def beside(self) -> tuple[FixedRole, ...]:
        """The roles that are not of the world, and know it."""
        return tuple(each for each in self.roles if each.role not in self.world)

    @property
    def every(self) -> tuple[Role, ...]:
        """All roles."""
        return (*self.world, *(each.role for each in self.beside))

    @property
    def first_worker_leads(self) -> bool:
        """Whether the first worker is TensorFlow's chief."""
        return self.framework is Framework.TENSORFLOW and self.chief and CHIEF not in self.world

    def fixed(self, role: Role) -> FixedRole | None:
        """Return a role beside worker and PS; None: it is one of these."""
        return next((each for each in self.roles if each.role is role), None)

    @property
    def placed(self) -> tuple[Role, ...]:
        """The roles that say where they run."""
        programs = ((role, self.program(role)) for role in self.every)
        return tuple(role for role, own in programs if own.together_with or own.apart_from)

    def _check_placement(self) -> None:
        roles = [str(role) for role in self.every]
        for role in self.placed:
            own = self.program(role)
            for name in (*own.together_with, *own.apart_from):
                if name not in roles:
                    raise InvalidValueError(
                        f"together_with and apart_from of {role} must name roles of the job "
                        f"({', '.join(roles)}), got {name!r}"
                    )
            if both := set(own.together_with) & {str(role), *self.apart_of(role)}:
                raise InvalidValueError(
                    f"{role} cannot be together_with {min(both)}: it is that, or one is apart_from the other"
                )
            if role in self._with_all(role):
                raise InvalidValueError(
                    f"{role} waits by together_with for roles that wait for it, and none could start; leave "
                    "one of them out"
                )

    def apart_of(self, role: Role) -> frozenset[str]:
        """Return the roles that a role runs apart from, by its own word or by theirs."""
        theirs = {str(other) for other in self.every if role in self.program(other).apart_from}
        return frozenset(theirs | {str(name) for name in self.program(role).apart_from})

    def _with_all(self, role: Role) -> set[str]:
        """Return the roles that a role waits for, itself if they wait for it."""
        names, left = set[str](), list(self.program(role).together_with)
        while left:
            name = left.pop()
            if name not in names:
                names.add(name)
                left += self.program(Role(name)).together_with
        return names

    def program(self, role: Role) -> ExternalRole:
        """Return the user's settings of a role's program."""
        if (own := self.fixed(role)) is not None:
            return own.program
        return self.worker if role is Role.WORKER else self.ps


def _check_step_log(pattern: str) -> None:
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        raise InvalidValueError(f"step_log must be a regular expression, got {pattern!r}: {error}") from error
    if unknown := sorted(set(groups) - set(STEP_GROUPS)):
        raise InvalidValueError(
            f"step_log has named groups of {', '.join(STEP_GROUPS)}, got {', '.join(unknown)}"
        )


MOST_COUNT = 1 << 50  # of what a program reports: sums over all programs fit into the 64 bits of a message


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
        for name in ("rank", "n_iter", "n_sample", "n_done", "cpu_s", "memory_mib"):
            if getattr(self, name) is not None:
                _check.at_least(name, getattr(self, name), 0)
                _check.at_most(name, getattr(self, name), MOST_COUNT)
        for name in ("at_s", "loss"):
            if getattr(self, name) is not None:
                _check.finite(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class Written:
    """A line that a program wrote, by the cluster's clock in nanoseconds."""

    node: str
    at_ns: int
    text: str
