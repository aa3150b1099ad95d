"""The verb `server brain` of the command line: planning for all jobs of a cluster together, as a service."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import sys
import threading
from argparse import ArgumentTypeError
from functools import partial
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.waits import until_ready
from dlrover_nb.core.disk.paths import HISTORY_VAR
from dlrover_nb.core.errors import DlroverError, InvalidValueError, NotFoundError
from dlrover_nb.core.extensions import BRAIN_METHODS, QUEUE_ORDERS, names
from dlrover_nb.core.extensions import WEIGHTS as WEIGHTS_OF_PACKAGES
from dlrover_nb.magics.parser import number, one_of, setting
from dlrover_nb.magics.verb import Verb, argument

if TYPE_CHECKING:
    from dlrover_nb.api.views.brain_view import BrainView
    from dlrover_nb.api.views.job_views import Note
    from dlrover_nb.core.brain.cluster_plan import BrainSettings
    from dlrover_nb.core.brain.service import Brain
    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.structs.views.brain import BrainRound
    from dlrover_nb.magics.commands import Commands
    from dlrover_nb.magics.verb import Values

ACTIONS = ("run", "once", "show")
METHODS, WEIGHTS, ORDERS = (
    ("weighted", "greedy", "qore"),
    ("remaining time", "equal", "priority", "deadline", "fair share"),
    ("first come", "shortest", "priority", "fair share", "qore"),
)


def _brain(
    commands: Commands,
    *,
    action: str,
    name: str | None,
    history: str | None,
    interval_s: float,
    settings: BrainSettings,
) -> Note | BrainView:
    """Plan until Ctrl-C or SIGTERM, plan once, or show what was planned last."""
    from dlrover_nb.api.views.brain_view import BrainView  # noqa: PLC0415 - with the verb alone
    from dlrover_nb.core.history.stores.brain_rounds import RoundStore  # noqa: PLC0415 - as above

    named, history = name or _name_of(commands), history or _shared_history(commands)
    if action == "show":
        rounds = RoundStore(history).newest(named)
        if not rounds:
            raise NotFoundError(
                f"no brain has planned for {named} in this history; "
                "start one with `dlrover-nb server brain`, or name the cluster with --name"
            )
        return BrainView(rounds[0])
    brain = _made(commands, named, history, interval_s, settings)
    return _once(brain) if action == "once" else _run(brain, named)


def _shared_history(commands: Commands) -> str | None:
    """Return the database that the cluster names, where the environment names none; None: neither does."""
    from dlrover_nb.core.client.cluster import NamesHistory  # noqa: PLC0415 - with the verb alone

    if os.environ.get(HISTORY_VAR):
        return None
    core = commands.cluster().core
    return core.history_url() if isinstance(core, NamesHistory) else None


def _name_of(commands: Commands) -> str:
    """Return what a cluster is called among those of a history; of this machine's own, with its name."""
    word = commands.address_of_cluster()
    return word if word and word != "local" else f"{word or 'ray'} on {socket.gethostname()}"


def _made(
    commands: Commands, name: str, history: str | None, interval_s: float, settings: BrainSettings
) -> Brain:
    from dlrover_nb.core.brain.service import Brain, Rhythm  # noqa: PLC0415 - with the verb alone
    from dlrover_nb.core.history.stores.brain_rounds import RoundStore  # noqa: PLC0415 - as above
    from dlrover_nb.core.history.stores.leases import LeaseStore  # noqa: PLC0415 - as above

    cluster = commands.cluster().core
    return Brain(
        cluster,
        name,
        leases=LeaseStore(history),
        rounds=RoundStore(history),
        settings=settings,
        rhythm=Rhythm(interval_s=interval_s),
        on_round=partial(_note, cluster, history),
    )


def _once(brain: Brain) -> BrainView:
    """Plan once, if no other brain does."""
    from dlrover_nb.api.views.brain_view import BrainView  # noqa: PLC0415 - with the verb alone

    if not brain.renew():
        raise InvalidValueError(
            f"{brain.holder} already plans for this cluster, which has one at a time; end it first, or see "
            "its last round with `dlrover-nb server brain show`"
        )
    try:
        return BrainView(brain.planned())
    finally:
        brain.resign()


def _run(brain: Brain, name: str) -> Note:
    from dlrover_nb.api.views.job_views import Note  # noqa: PLC0415 - charts load with the first verb

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger("dlrover_nb")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    stop = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        with until_ready() as ready:
            ready()  # from here on the log says it
            brain.run(stop)
    except KeyboardInterrupt:
        brain.resign()
    finally:
        signal.signal(signal.SIGTERM, before)
        log.removeHandler(handler)
    return Note("Brain", f"the brain of {name} has ended; jobs go on by themselves")


def _note(cluster: Cluster, history: str | None, last: BrainRound) -> None:
    """Log a round, and keep what the machines of the cluster do meanwhile."""
    from dlrover_nb.core.client.load_sampler import sample_load  # noqa: PLC0415 - with the verb alone

    _log(last)
    try:
        sample_load(cluster, last.at_s, history)
    except DlroverError as error:
        logging.getLogger(__name__).warning("the load of the cluster is not kept: %s", error.text)


def _log(last: BrainRound) -> None:
    grown = [f"{share.job} {share.added_cores:+g} cores" for share in last.shares if share.added_cores]
    refused = [f"{share.job} refused: {share.refused}" for share in last.shares if share.refused]
    started = [f"{each.job} starts with {each.admitted.short}" for each in last.queue if each.admitted]
    n_waiting = sum(each.admitted is None for each in last.queue)
    logging.getLogger(__name__).info(
        "round %d of term %d in %.2f s: %d jobs planned, %d left out, %d waiting%s",
        last.number,
        last.term,
        last.took_s,
        len(last.shares),
        len(last.apart),
        n_waiting,
        "".join(f"; {each}" for each in (*started, *grown, *refused, *([last.note] if last.note else []))),
    )


def _settings(values: Values) -> Values:
    """Return the values with the settings that some of them make."""
    from dlrover_nb.core.brain.cluster_plan import BrainSettings  # noqa: PLC0415 - numpy, with the verb alone
    from dlrover_nb.core.jobfile import cluster_tuning  # noqa: PLC0415 - as above

    left = dict(values)
    ceilings, tuning = left.pop("ceiling"), left.pop("set")
    assert isinstance(tuning, list)
    settings = BrainSettings(
        method=str(left.pop("method")),
        weight=str(left.pop("weight")),
        shrink=bool(left.pop("shrink")),
        order=str(left.pop("order")),
        start_share=float(str(left.pop("start_share"))),
        ceilings=dict(ceilings) if isinstance(ceilings, list) else {},
        tuning=cluster_tuning(tuning),
    )
    return {**left, "settings": settings}


def _ceiling(text: str) -> tuple[str, float]:
    owner, is_named, money = text.partition("=")
    if not (owner and is_named):
        raise ArgumentTypeError(f"must be OWNER=MONEY, such as ada=12.5, got {text!r}")
    return owner, _above_zero(money)


def _above_zero(text: str) -> float:
    value = number(text)
    if not (math.isfinite(value) and value > 0):
        raise ArgumentTypeError(f"must be above zero, got {text!r}")
    return value


def _share(text: str) -> float:
    value = _above_zero(text)
    if value > 1:
        raise ArgumentTypeError(f"must be above 0 and at most 1, got {text!r}")
    return value


BRAIN = Verb(
    "brain",
    "plan for all jobs of a cluster together, until Ctrl-C",
    _brain,
    (
        argument(
            "action",
            metavar="ACTION",
            nargs="?",
            default="run",
            type=one_of("action", ACTIONS),
            help="run (default), once, or show what was planned last",
        ),
        argument("--name", metavar="NAME", help="of the cluster in the history, the same for all its brains"),
        argument("--history", metavar="URL", help="of the database that masters and brains share"),
        argument(
            "--interval",
            dest="interval_s",
            type=_above_zero,
            default=30.0,
            metavar="SECONDS",
            help="from plan to plan (default 30)",
        ),
        argument(
            "--method",
            type=one_of("method", METHODS, partial(names, BRAIN_METHODS)),
            default="weighted",
            metavar="METHOD",
            help="weighted (default), greedy as DLRover-RM's paper has it, or qore: by deadlines",
        ),
        argument(
            "--weight",
            type=one_of("weight", WEIGHTS, partial(names, WEIGHTS_OF_PACKAGES)),
            default="remaining time",
            metavar="WEIGHT",
            help="of jobs' gains: remaining time (default), equal, priority, deadline, fair share",
        ),
        argument(
            "--order",
            type=one_of("order", ORDERS, partial(names, QUEUE_ORDERS)),
            default="first come",
            metavar="ORDER",
            help="of the queue: first come (default), shortest, priority, fair share, qore",
        ),
        argument(
            "--start-share",
            type=_share,
            default=0.5,
            metavar="SHARE",
            help="of its cores, with which a waiting job may start (default 0.5)",
        ),
        argument("--shrink", action="store_true", help="may make a job slower to make room for others"),
        argument(
            "--ceiling",
            action="append",
            type=_ceiling,
            metavar="OWNER=MONEY",
            help="the most that an hour of all jobs of an owner may cost",
        ),
        argument(
            "--set",
            type=setting,
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help="a parameter of a paper, such as tuning.dlrover_rm.rho=2.5 or tuning.qore.light=0.35",
        ),
    ),
    "run --interval 30",
    interpret=(_settings,),
)
