"""`python -m simulation`: runs seeds, and prints a line for each failure and one for all."""

from __future__ import annotations

import argparse
import logging
import math
import sys
import time
from collections import Counter

from simulation.search import SCENARIOS, failures, kept, run, scenario


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--minutes", type=float, default=math.inf, help="at most")
    parser.add_argument("--seed", type=int, help="replay this one, and say what happens in it")
    parser.add_argument(
        "--kind", default="", choices=("", *SCENARIOS), help="of all seeds; without it they take turns"
    )
    parser.add_argument("--only", help="with these of its events, as 0,3; none: without any")
    return parser.parse_args()


def _replay(seed: int, kind: str, only: str | None) -> int:
    case = scenario(seed, kind)
    if only is not None:
        case = kept(case, [] if only == "none" else map(int, only.split(",")))
    print(f"seed {seed}: {case.words}")
    for event in case.events:
        print(f"  {event}")
    verdict = run(case)
    print(f"{verdict.end} after {verdict.simulated_s:.1f} s; {verdict.words or 'nothing is wrong'}")
    return 1 if verdict.kind else 0


def main() -> int:
    """Run what is asked for; return 1 where a seed failed."""
    arguments = _arguments()
    if arguments.seed is not None:
        return _replay(arguments.seed, arguments.kind, arguments.only)
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    ends, simulated_s, n_failed, began_s = Counter[str](), 0.0, 0, time.process_time()
    for verdict, command in failures(seeds, limit_s=60 * arguments.minutes, kind=arguments.kind):
        ends[verdict.end] += 1
        simulated_s += verdict.simulated_s
        if verdict.kind:
            n_failed += 1
            print(f"seed {verdict.seed}: {verdict.words}; {command}", flush=True)
    used_s = time.process_time() - began_s
    how = ", ".join(f"{n} {end}" for end, n in ends.most_common())
    print(
        f"{ends.total()} seeds, {simulated_s / 3600:.2f} simulated hours, {n_failed} failures; {how}; "
        f"{ends.total() / used_s * 60:.0f} seeds a minute of one core"
    )
    return 1 if n_failed else 0


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.exit(main())
