"""What all benchmarks share: how long they take, how they end, and the line that they print last."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from types import FrameType

BEGAN_S = time.monotonic()


def parsed(parser: argparse.ArgumentParser, **whole: object) -> argparse.Namespace:
    """Parse the command line of a benchmark, and let it clean up where it is ended from outside.

    Parameters
    ----------
    whole
        Values of options with `--whole`, where they are not given; without it those of the parser, with which
        the benchmark takes about a minute on a machine of two cores. Without any there is no `--whole`.
    """
    if whole:
        longer = ", ".join(f"{name} {value}" for name, value in whole.items())
        parser.add_argument("--whole", action="store_true", help=f"take longer: {longer}".replace("%", "%%"))
        if "--whole" in sys.argv:
            parser.set_defaults(**whole)
    options = parser.parse_args()
    end_cleanly()
    return options


def end_cleanly() -> None:
    """Leave by an exception on SIGTERM, so that jobs are stopped, and folders and shared memory deleted.

    To be called again after a connection to Ray, whose handler aborts the process. A forked child has this
    one too. It ends at once, as it would without: what is to be cleaned up is not its own.
    """
    owner = os.getpid()

    def leave(number: int, _frame: FrameType | None) -> None:
        if os.getpid() == owner:
            signal.signal(number, signal.SIG_IGN)  # a second one would end the cleaning
            raise SystemExit(128 + number)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, leave)


def print_figures(benchmark: str, figures: Mapping[str, object]) -> None:
    """Print one line of JSON: figures, and what they took.

    `took_s` are seconds of the clock, `took_cpu_s` CPU seconds of this process and of those that it waited
    for (nodes of a job have another parent, so their time is not in it), `load` the machine's load average of
    the last minute.
    """
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    took = {
        "took_s": round(time.monotonic() - BEGAN_S, 1),
        "took_cpu_s": round(sum(each.ru_utime + each.ru_stime for each in used), 1),
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps({"benchmark": benchmark, **took, **figures}), flush=True)
