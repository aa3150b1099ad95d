"""Jobs on Kubernetes, measured in three parts; choose one with ``--parts``.

=====  =================================================================  =========
part   figure                                                             target
=====  =================================================================  =========
fakes  many jobs of fake pods on a control plane alone (`kube_fakes`):
       fakes_requests_per_minute_per_job: at rest                         <= 10
       fakes_cpu_percent, fakes_memory_mib: of the masters' backends
       fakes_notice_ms: from the end of a pod to its master
       fakes_back_s: the same just after the API server's return
pods   a job in real pods on two nodes, and the same on a local Ray:
       submit_to_first_step_s: from submit to the first trained samples
       scale_out_s: from the decision to the new worker's first step
rest   pods_requests_per_minute: of a real job's master, at rest, by the
       audit of the API server, which is restarted for that              <= 10
=====  =================================================================  =========

The cluster is that of the tests (`tests/support/kubernetes/kube.py`): ``DLROVER_NB_TEST_KUBE`` names one with
nodes that is up.

    python benchmarks/kubernetes.py [--parts fakes --jobs 200 --rest 60]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lengths import parsed, print_figures

sys.path.append(str(Path(__file__).parents[1] / "tests"))

TARGETS = {
    "fakes_requests_per_minute_per_job": 10.0,
    "fakes_served_per_minute_per_job": 10.0,
    "pods_requests_per_minute": 10.0,
}
PARTS = ("fakes", "pods", "rest")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    from support.kubernetes.kube import started

    figures: dict[str, Any] = {}
    if "fakes" in options.parts:
        from kube_fakes import NOBODY_IS_LOST, fakes

        with started("cp", **NOBODY_IS_LOST) as run:
            figures |= fakes(
                run, n_job=options.jobs, rest_s=options.rest, n_end=options.ends, away_s=options.away
            )
    if {"pods", "rest"} & set(options.parts):
        figures |= _with_nodes(options)
    return figures


def _with_nodes(options: argparse.Namespace) -> dict[str, Any]:
    import kube_pods
    from support.kubernetes.kube import with_nodes

    figures: dict[str, Any] = {}
    with with_nodes() as run:
        if "pods" in options.parts:
            figures |= kube_pods.pods(run, n_time=options.times, on_ray=not options.no_ray)
        if "rest" in options.parts:
            figures |= kube_pods.at_rest(run, options.rest)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS[:1], metavar="PART", help=", ".join(PARTS)
    )
    parser.add_argument("--jobs", type=int, default=50, help="of fake pods")
    parser.add_argument("--rest", type=float, default=10.0, help="seconds that jobs at rest are watched")
    parser.add_argument("--ends", type=int, default=20, help="fake pods that end, one after the other")
    parser.add_argument("--away", type=float, default=20.0, help="seconds without an API server")
    parser.add_argument("--times", type=int, default=3, help="jobs in real pods, and on Ray")
    parser.add_argument("--no-ray", action="store_true", help="leave out the same jobs on Ray")
    options = parsed(parser, parts=PARTS, jobs=200, rest=60.0, ends=100)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dlb") as name:
        os.environ |= {f"XDG_{kind}_HOME": f"{name}/{kind.lower()}" for kind in ("STATE", "DATA", "CONFIG")}
        figures = measure(options)
    for key, value in figures.items():
        target = f"   (target {TARGETS[key]:g})" if key in TARGETS else ""
        print(f"{key:36} {value}{target}")
    missed = [name for name, most in TARGETS.items() if name in figures and figures[name] > most]
    seconds = round(time.monotonic() - began_s, 1)
    print_figures("kubernetes", {**figures, "missed": missed, "seconds": seconds})
