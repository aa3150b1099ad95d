"""The table of verbs: what each takes, and the request that it makes of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.api.sizes import Sizes, check_given
from dlrover_nb.core.client.handle import Until
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job import Mode
from dlrover_nb.magics import flags
from dlrover_nb.magics import requests as rq

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from dlrover_nb.magics.flags import Argument

_PROPOSAL = re.compile(r"p\d+")
_DECISION = re.compile(r"d\d+")
_RUN = re.compile(r".+@[\d.]+")
_NODE = re.compile(r"(worker|ps)-\d+")


@dataclass(frozen=True, slots=True)
class Verb:
    """One line of the table of verbs.

    Parameters
    ----------
    name, summary
        As shown in the help.
    build
        Makes the request of what was parsed.
    arguments
        What it takes.
    example
        Words after the verb, for its help.
    cli_only
        Whether it makes sense on the command line alone.
    """

    name: str
    summary: str
    build: Callable[[argparse.Namespace], rq.Request]
    arguments: tuple[Argument, ...] = ()
    example: str = ""
    cli_only: bool = False


def _sizes(parsed: argparse.Namespace, *, needed: bool = True) -> Sizes:
    sizes = Sizes(
        parsed.workers,
        parsed.ps,
        parsed.worker_cpu,
        parsed.ps_cpu,
        parsed.worker_memory,
        parsed.ps_memory,
    )
    if needed:
        check_given(sizes, (flag for flag, *_ in flags.SIZE_FLAGS))
    return sizes


def _named(job: str | None, other: str | None, pattern: re.Pattern[str]) -> tuple[str | None, str | None]:
    """Return (job, other): a single word that looks like the other thing's name is no job's."""
    return (None, job) if other is None and job and pattern.fullmatch(job) else (job, other)


def _answered(parsed: argparse.Namespace) -> tuple[str | None, str | None]:
    return _named(parsed.job, parsed.proposal, _PROPOSAL)


def _submitted(parsed: argparse.Namespace) -> rq.Submit:
    values = vars(parsed)
    given = tuple((path, values[path]) for _, path, *_ in flags.SUBMIT_FLAGS if values[path] is not None)
    name = (("name", parsed.name),) if parsed.name else ()
    warm = (("warm_start", True),) if parsed.warm_start else ()
    return rq.Submit(parsed.file, (*parsed.set, *name, *given, *warm), parsed.wait)


def _shards(parsed: argparse.Namespace) -> rq.Shards:
    if parsed.retry is not None and parsed.skip is not None:
        raise InvalidValueError("--skip is not allowed with --retry; decide about one shard at a time")
    return rq.Shards(parsed.job, parsed.retry, parsed.skip, parsed.why)


def _import(parsed: argparse.Namespace) -> rq.Import:
    chosen = [f"--{name}" for name in ("check", "submit", "apply") if getattr(parsed, name)]
    if len(chosen) > 1:
        raise InvalidValueError(f"{' and '.join(chosen)} do not go together; give one of them")
    return rq.Import(parsed.file, parsed.check, parsed.submit, parsed.apply)


_VERBS = (
    Verb(
        "connect",
        "start or join where jobs run",
        lambda p: rq.Connect(p.kind, p.address, p.cpus, p.machines, p.speed, p.context, p.namespace),
        flags.CONNECT,
        "ray",
    ),
    Verb(
        "submit",
        "start a job, from flags, YAML or Python",
        _submitted,
        flags.SUBMIT,
        "quick-start --workers 2 --mode suggest",
    ),
    Verb("jobs", "list jobs", lambda _: rq.Jobs()),
    Verb("status", "show a job's state", lambda p: rq.Status(p.job), (flags.JOB,), "quick-start"),
    Verb("watch", "follow a job live", lambda p: rq.Watch(p.job), (flags.JOB,), "quick-start"),
    Verb(
        "plans",
        "show the open proposal, the front and the fit",
        lambda p: rq.Plans(p.job),
        (flags.JOB,),
        "quick-start",
    ),
    Verb(
        "why",
        "say why a plan is proposed, or why none is, and what would change that",
        lambda p: rq.Why(*_answered(p)),
        (flags.JOB, flags.PROPOSAL),
        "quick-start p1",
    ),
    Verb(
        "whatif",
        "say what another plan would bring; nothing changes",
        lambda p: rq.WhatIf(p.job, _sizes(p)),
        (flags.JOB, *flags.SIZES),
        "quick-start --workers 4",
    ),
    Verb(
        "accept",
        "accept a proposal",
        lambda p: rq.Accept(*_answered(p), p.why),
        flags.ANSWER,
        'quick-start p1 --why "faster"',
    ),
    Verb(
        "override",
        "answer a proposal with a plan of your own",
        lambda p: rq.Override(*_answered(p), _sizes(p), p.why),
        (*flags.ANSWER, *flags.SIZES),
        "quick-start --workers 3",
    ),
    Verb(
        "reject",
        "reject a proposal",
        lambda p: rq.Reject(*_answered(p), p.why),
        flags.ANSWER,
        "quick-start p1",
    ),
    Verb(
        "pin",
        "fix parts of every plan to come",
        lambda p: rq.Pin(p.job, _sizes(p, needed=not p.clear), p.clear, p.why),
        (flags.JOB, flags.WHY, *flags.SIZES, flags.CLEAR),
        "--worker-memory 4096",
    ),
    Verb(
        "mode",
        "say who decides",
        lambda p: rq.SetMode(p.job, Mode(p.mode), p.why),
        (flags.JOB, flags.MODE, flags.WHY),
        "quick-start auto",
    ),
    Verb(
        "scale",
        "change the plan of a running job",
        lambda p: rq.Scale(p.job, _sizes(p), p.why),
        (flags.JOB, flags.WHY, *flags.SIZES),
        "--workers 3 --ps-cpu 0.5",
    ),
    Verb(
        "undo",
        "take back the latest decision; again: redo it",
        lambda p: rq.Undo(*_named(p.job, p.decision, _DECISION), p.why),
        (flags.JOB, flags.DECISION, flags.WHY),
        'quick-start --why "it got slower"',
    ),
    Verb(
        "logs",
        "show what nodes wrote, the newest last",
        lambda p: rq.Logs(*_named(p.job, p.node, _NODE), p.lines),
        (flags.JOB, flags.NODE, flags.N_LINE),
        "quick-start worker-0 -n 20",
    ),
    Verb(
        "history",
        "look back on past runs, or on one of them",
        lambda p: rq.History(*_named(p.job, p.run, _RUN)),
        (flags.JOB, flags.RUN),
        "quick-start",
    ),
    Verb(
        "score",
        "show how good predictions were",
        lambda p: rq.Score(p.owner, p.days),
        flags.SCORE,
        "--days 30",
    ),
    Verb(
        "export",
        "write a plan as YAML: ElasticJob, ScalePlan, TFJob, RayJob or others",
        lambda p: rq.Export(
            p.job, p.kind, p.plan, p.output, p.force, p.auto_scale, p.check, p.image, p.namespace
        ),
        flags.EXPORT,
        "quick-start -o elasticjob.yaml",
    ),
    Verb(
        "import",
        "read an exported file: show, check, start or apply it",
        _import,
        flags.IMPORT,
        "elasticjob.yaml",
    ),
    Verb(
        "attach",
        "find a job again from a new kernel; without a name, all of them",
        lambda p: rq.Attach(p.job),
        (flags.JOB,),
        "quick-start",
    ),
    Verb(
        "wait",
        "block until a job has ended or proposes a plan",
        lambda p: rq.Wait(p.job, p.timeout, Until(p.until)),
        flags.WAIT,
        "quick-start --for proposal --timeout 60",
    ),
    Verb(
        "stop",
        "stop a job, keeping what it learnt",
        lambda p: rq.Stop(p.job, p.why),
        (flags.JOB, flags.WHY),
        'quick-start --why "good enough"',
    ),
    Verb(
        "delete",
        "remove a job and all that it left but its history",
        lambda p: rq.Delete(p.job, p.force),
        flags.DELETE,
        "quick-start",
    ),
    Verb(
        "shards",
        "show the account of rows, and decide about those set aside",
        _shards,
        flags.SHARDS,
        'quick-start --skip 7 --why "damaged rows"',
    ),
    Verb(
        "report",
        "write a self-contained HTML report",
        lambda p: rq.Report(p.job, p.output, p.force),
        (flags.JOB, *flags.OUTPUT),
        "quick-start -o report.html",
    ),
    Verb(
        "predict",
        "score a file with a job's last checkpoint",
        lambda p: rq.Predict(p.job, p.rows, p.output, p.force),
        flags.PREDICT,
        "quick-start new.parquet -o scores.parquet",
    ),
    Verb("dash", "follow all jobs live, and open one of them", lambda _: rq.Dash()),
    Verb(
        "shutdown",
        "end the cluster that was started here",
        lambda p: rq.Shutdown(p.force),
        flags.SHUTDOWN,
    ),
    Verb("demo", "run the demonstration", lambda p: rq.Demo(p.out), flags.DEMO, cli_only=True),
    Verb("help", "explain all verbs, or one", lambda p: rq.Help(p.verb), flags.HELP, "submit"),
)
VERBS = {verb.name: verb for verb in _VERBS}
