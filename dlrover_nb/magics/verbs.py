"""The table of verbs: what each takes, and the request that it makes of it."""

from __future__ import annotations

import argparse
import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import yaml

from dlrover_nb.api.sizes import Sizes, check_given
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.session.client import Until
from dlrover_nb.core.structs.job import DataFormat, Embedding, Metric, Migration, Mode, Optimizer, Sync
from dlrover_nb.magics.requests import (
    Accept,
    Attach,
    Connect,
    Demo,
    Export,
    Help,
    Jobs,
    Override,
    Pin,
    Plans,
    Predict,
    Reject,
    Report,
    Request,
    Scale,
    SetMode,
    Shards,
    Shutdown,
    Status,
    Stop,
    Submit,
    Wait,
    Watch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_PROPOSAL = re.compile(r"p\d+")


class Parser(argparse.ArgumentParser):
    """Parser of one verb that raises `InvalidValueError` instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Raise the mistake as one line."""
        verb = self.prog.split()[-1]
        raise InvalidValueError(
            f"{message.removeprefix('argument ')}; see {self.prog.split()[0]} help {verb}"
        )

    @property
    def flags(self) -> tuple[str, ...]:
        """Return all long flags."""
        return tuple(s for action in self._actions for s in action.option_strings if s.startswith("--"))

    @property
    def positionals(self) -> tuple[str, ...]:
        """Return the names of the positional arguments."""
        return tuple(str(action.metavar) for action in self._actions if not action.option_strings)


@dataclass(frozen=True, slots=True)
class Verb:
    """One line of the table of verbs.

    Parameters
    ----------
    name, summary
        As shown in the help.
    add
        Adds the verb's arguments to its parser.
    build
        Makes the request of what was parsed.
    example
        Words after the verb, for its help.
    cli_only
        Whether it makes sense on the command line alone.
    """

    name: str
    summary: str
    add: Callable[[Parser], None]
    build: Callable[[argparse.Namespace], Request]
    example: str = ""
    cli_only: bool = False


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}") from None


SIZE_FLAGS: tuple[tuple[str, str, Callable[[str], float], str, str], ...] = (
    ("--workers", "plan.worker.count", _whole, "N", "number of workers"),
    ("--ps", "plan.ps.count", _whole, "N", "number of parameter servers"),
    ("--worker-cpu", "plan.worker.cpu", _number, "CORES", "cores of each worker"),
    ("--ps-cpu", "plan.ps.cpu", _number, "CORES", "cores of each parameter server"),
    ("--worker-memory", "plan.worker.memory_mib", _whole, "MIB", "memory of each worker"),
    ("--ps-memory", "plan.ps.memory_mib", _whole, "MIB", "memory of each parameter server"),
)


def _one_of(what: str, choices: Iterable[str]) -> Callable[[str], str]:
    known = tuple(str(c) for c in choices)

    def check(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"unknown {what} {text!r}; {did_you_mean(text, known)}")
        return text

    return check


def did_you_mean(text: str, known: Sequence[str]) -> str:
    """Return the nearest of `known` as a question, or all of them."""
    near = difflib.get_close_matches(text, known, n=1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"


def _columns(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _setting(text: str) -> tuple[str, object]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE such as model.hash_size=4096, got {text!r}")
    try:
        return key.strip(), yaml.safe_load(value)
    except (yaml.YAMLError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"malformed value in {text!r}") from error


def _widths(text: str) -> list[int]:
    return [_whole(part) for part in _columns(text)]


def _yes_no(text: str) -> bool:
    known = {"yes": True, "no": False, "true": True, "false": False}
    if text not in known:
        raise argparse.ArgumentTypeError(f"must be yes or no, got {text!r}")
    return known[text]


_mode = _one_of("mode", Mode)
SUBMIT_FLAGS: tuple[tuple[str, str, Callable[[str], object], str, str], ...] = (
    ("--data", "data.path", str, "FILE", "rows to train on; left out: the census rows that ship"),
    (
        "--format",
        "data.format",
        _one_of("format", DataFormat),
        "FORMAT",
        "census, parquet, criteo, numpy or own",
    ),
    ("--label", "data.label", str, "COLUMN", "column with 0 or 1"),
    ("--numeric", "data.numeric", _columns, "A,B", "number columns; none named: all, by type"),
    ("--categorical", "data.categorical", _columns, "A,B", "columns of ids"),
    ("--exclude", "data.exclude", _columns, "A,B", "columns to leave out"),
    ("--holdout", "data.holdout", _number, "SHARE", "share of rows kept for evaluation"),
    ("--mode", "mode", _mode, "MODE", "who decides: manual, suggest or auto"),
    ("--batch-size", "batch_size", _whole, "N", "samples of one mini-batch"),
    ("--epochs", "epochs", _whole, "N", "passes over the rows"),
    ("--seed", "seed", _whole, "N", "of the order of rows"),
    ("--model", "model.name", str, "MODEL", "wide_deep, dcn_v2, xdeepfm, or your own: a name"),
    ("--embedding-dim", "model.embedding_dim", _whole, "N", "width of an embedding"),
    ("--hidden", "model.hidden", _widths, "A,B", "widths of the deep part's layers"),
    ("--cross-layers", "model.cross_layers", _whole, "N", "cross layers of dcn_v2"),
    ("--cin", "model.cin", _widths, "A,B", "feature maps of xdeepfm's layers"),
    ("--embedding", "model.embedding", _one_of("embedding", Embedding), "KIND", "fixed tables, or hash"),
    ("--hash-size", "model.hash_size", _whole, "N", "most rows of one column of fixed tables"),
    ("--optimizer", "model.optimizer", _one_of("optimizer", Optimizer), "NAME", "sgd, adagrad or adam"),
    ("--learning-rate", "model.learning_rate", _number, "X", "of the optimizer"),
    ("--beta1", "model.beta1", _number, "X", "of adam"),
    ("--beta2", "model.beta2", _number, "X", "of adam"),
    ("--epsilon", "model.epsilon", _number, "X", "of adam"),
    ("--sync", "sync", _one_of("sync", Sync), "KIND", "asp, bsp or ssp: how far workers may run ahead"),
    ("--staleness", "staleness", _whole, "N", "the bound of ssp, in iterations"),
    ("--overlap", "overlap", _yes_no, "YES|NO", "whether a worker computes while gradients travel"),
    ("--migration", "migration", _one_of("migration", Migration), "KIND", "seamless or restart"),
    ("--checkpoint-url", "checkpoint_url", str, "URL", "where checkpoints are kept"),
    ("--early-stopping", "early_stopping.metric", _one_of("metric", Metric), "METRIC", "auc or log_loss"),
    ("--patience", "early_stopping.patience", _whole, "N", "passes without gain before training ends"),
    ("--min-gain", "early_stopping.min_gain", _number, "X", "what counts as a gain"),
    *SIZE_FLAGS,
)


def _add_job(parser: Parser) -> None:
    parser.add_argument("job", metavar="JOB", nargs="?", help="its name; not needed while one job runs")


def _add_why(parser: Parser) -> None:
    parser.add_argument("--why", metavar="TEXT", default="", help="reason, kept with the decision")


def _add_sizes(parser: Parser) -> None:
    for flag, _, kind, metavar, text in SIZE_FLAGS:
        parser.add_argument(flag, type=kind, metavar=metavar, help=text)


def _add_answer(parser: Parser) -> None:
    _add_job(parser)
    parser.add_argument("proposal", metavar="PROPOSAL", nargs="?", help="its id, such as p3")
    _add_why(parser)


def _add_override(parser: Parser) -> None:
    _add_answer(parser)
    _add_sizes(parser)


def _add_scale(parser: Parser) -> None:
    _add_job(parser)
    _add_why(parser)
    _add_sizes(parser)


def _add_connect(parser: Parser) -> None:
    parser.add_argument("kind", metavar="KIND", nargs="?", default="ray", help="ray, or sim: nothing real")
    parser.add_argument("address", metavar="ADDRESS", nargs="?", help="of a cluster; left out: this machine")
    parser.add_argument("--cpus", type=_number, metavar="N", help="cores that a cluster of our own offers")
    parser.add_argument("--machines", type=_whole, metavar="N", help="of a simulated cluster")
    parser.add_argument("--speed", type=_number, metavar="X", help="simulated seconds in a second")


def _add_submit(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="of the job")
    parser.add_argument("--file", metavar="FILE", help="job file (YAML); flags win over it")
    for flag, path, kind, metavar, text in SUBMIT_FLAGS:
        parser.add_argument(flag, dest=path, type=kind, metavar=metavar, help=text)
    parser.add_argument(
        "--warm-start", action="store_true", help="begin on what jobs like it ended with, if there are any"
    )
    parser.add_argument(
        "--set", type=_setting, action="append", default=[], metavar="KEY=VALUE", help="any key of a job file"
    )


def _add_mode(parser: Parser) -> None:
    _add_job(parser)
    parser.add_argument("mode", metavar="MODE", type=_mode, help="manual, suggest or auto")
    _add_why(parser)


def _add_pin(parser: Parser) -> None:
    _add_scale(parser)
    parser.add_argument("--clear", action="store_true", help="let go of what is fixed so far")


def _add_export(parser: Parser) -> None:
    _add_job(parser)
    parser.add_argument("--plan", metavar="PLAN", default="current", help="current, or a proposal's id")
    _add_file(parser, required=False)
    parser.add_argument("--image", metavar="IMAGE", help="of the pods")
    parser.add_argument("--namespace", metavar="NAME", help="where the job goes")


def _add_file(parser: Parser, *, required: bool) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", required=required, help="file to write")
    parser.add_argument("--force", action="store_true", help="overwrite it")


def _add_report(parser: Parser) -> None:
    _add_job(parser)
    _add_file(parser, required=True)


def _add_predict(parser: Parser) -> None:
    parser.add_argument("job", metavar="JOB", help="its name, also after its end, or its run folder")
    parser.add_argument("rows", metavar="ROWS", help="file with the columns that were trained on")
    _add_file(parser, required=True)


def _add_wait(parser: Parser) -> None:
    _add_job(parser)
    parser.add_argument("--timeout", type=_number, metavar="SECONDS", help="give up waiting after this long")
    parser.add_argument(
        "--for",
        dest="until",
        metavar="WHAT",
        type=_one_of("thing to wait for", Until),
        default=Until.END,
        help="end (of the job), or proposal",
    )


def _add_stop(parser: Parser) -> None:
    _add_job(parser)
    _add_why(parser)


def _add_shards(parser: Parser) -> None:
    _add_job(parser)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--retry", type=_whole, metavar="SHARD", help="train it again, its rows are mended")
    choice.add_argument("--skip", type=_whole, metavar="SHARD", help="go on without it")
    _add_why(parser)


def _add_shutdown(parser: Parser) -> None:
    parser.add_argument("--force", action="store_true", help="even while jobs run")


def _add_demo(parser: Parser) -> None:
    parser.add_argument("--out", metavar="FOLDER", default="demo-output", help="where results are written")


def _add_help(parser: Parser) -> None:
    parser.add_argument("verb", metavar="VERB", nargs="?", help="one verb")


def _add_nothing(_: Parser) -> None:
    """Take no arguments."""


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
        check_given(sizes, (flag for flag, *_ in SIZE_FLAGS))
    return sizes


def _answered(parsed: argparse.Namespace) -> tuple[str | None, str | None]:
    """Return (job, proposal); a single word that looks like a proposal's id is one, not a job's name."""
    job, proposal = parsed.job, parsed.proposal
    return (None, job) if proposal is None and job and _PROPOSAL.fullmatch(job) else (job, proposal)


def _submitted(parsed: argparse.Namespace) -> Submit:
    values = vars(parsed)
    flags = tuple((path, values[path]) for _, path, *_ in SUBMIT_FLAGS if values[path] is not None)
    name = (("name", parsed.name),) if parsed.name else ()
    warm = (("warm_start", True),) if parsed.warm_start else ()
    return Submit(parsed.file, (*parsed.set, *name, *flags, *warm))


_VERBS = (
    Verb(
        "connect",
        "start or join where jobs run",
        _add_connect,
        lambda p: Connect(p.kind, p.address, p.cpus, p.machines, p.speed),
        "ray",
    ),
    Verb(
        "submit",
        "start a job, from flags or YAML",
        _add_submit,
        _submitted,
        "quick-start --workers 2 --mode suggest",
    ),
    Verb("jobs", "list jobs", _add_nothing, lambda _: Jobs()),
    Verb("status", "show a job's state", _add_job, lambda p: Status(p.job)),
    Verb("watch", "follow a job live", _add_job, lambda p: Watch(p.job)),
    Verb("plans", "show the open proposal, the front and the fit", _add_job, lambda p: Plans(p.job)),
    Verb(
        "accept",
        "accept a proposal",
        _add_answer,
        lambda p: Accept(*_answered(p), p.why),
        'quick-start p1 --why "faster"',
    ),
    Verb(
        "override",
        "answer a proposal with a plan of your own",
        _add_override,
        lambda p: Override(*_answered(p), _sizes(p), p.why),
        "quick-start --workers 3",
    ),
    Verb(
        "reject", "reject a proposal", _add_answer, lambda p: Reject(*_answered(p), p.why), "quick-start p1"
    ),
    Verb(
        "scale",
        "change the plan of a running job",
        _add_scale,
        lambda p: Scale(p.job, _sizes(p), p.why),
        "--workers 3 --ps-cpu 0.5",
    ),
    Verb(
        "pin",
        "fix parts of every plan to come",
        _add_pin,
        lambda p: Pin(p.job, _sizes(p, needed=not p.clear), p.clear, p.why),
        "--worker-memory 4096",
    ),
    Verb(
        "mode",
        "say who decides",
        _add_mode,
        lambda p: SetMode(p.job, Mode(p.mode), p.why),
        "quick-start auto",
    ),
    Verb(
        "export",
        "write a plan as ElasticJob YAML",
        _add_export,
        lambda p: Export(p.job, p.plan, p.output, p.force, p.image, p.namespace),
        "quick-start -o elasticjob.yaml",
    ),
    Verb("attach", "get hold of a job that runs already", _add_job, lambda p: Attach(p.job)),
    Verb(
        "wait",
        "block until a job has ended or proposes a plan",
        _add_wait,
        lambda p: Wait(p.job, p.timeout, Until(p.until)),
    ),
    Verb("stop", "stop a job, keeping what it learnt", _add_stop, lambda p: Stop(p.job, p.why)),
    Verb(
        "shards",
        "show the account of rows, and decide about those set aside",
        _add_shards,
        lambda p: Shards(p.job, p.retry, p.skip, p.why),
        'quick-start --skip 7 --why "damaged rows"',
    ),
    Verb(
        "report",
        "write a self-contained HTML report",
        _add_report,
        lambda p: Report(p.job, p.output, p.force),
        "quick-start -o report.html",
    ),
    Verb(
        "predict",
        "score a file with a job's last checkpoint",
        _add_predict,
        lambda p: Predict(p.job, p.rows, p.output, p.force),
        "quick-start new.parquet -o scores.parquet",
    ),
    Verb("shutdown", "end the cluster that was started here", _add_shutdown, lambda p: Shutdown(p.force)),
    Verb("demo", "run the demonstration", _add_demo, lambda p: Demo(p.out), cli_only=True),
    Verb("help", "explain all verbs, or one", _add_help, lambda p: Help(p.verb)),
)
VERBS = {verb.name: verb for verb in _VERBS}
