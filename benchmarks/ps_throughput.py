"""Samples per second of workers and parameter servers, compared with the machine's limit and with peers.

On the same synthetic, Criteo-like batches and the same models: ours, hogwild (n processes on tables in shared
memory, no messages: the limit), one process without any communication, a parameter server by torch's own RPC
(`torch_rpc.py`, one PS), and TensorFlow's parameter servers (where `--venv-tf` names its environment). Ours
is measured by the peers' own training loop on their own torch modules (`--own-model`: on ours), which calls
real PS processes through our client, once through shared memory and once through messages (`frames`); no CPU
limits. With `--tcp` messages also go over TCP as between hosts: in sealed sessions (`tcp`), in such that
authenticate only (`tcp_trusted`), in such that do neither (`tcp_plain`, which no job does), and under CURVE
(`tcp_curve`). All take turns within one run.
The results are medians of the ratios within a round, and CPU milliseconds per step (all processes).

Hogwild and the single process multiply with the same library as ours (`limit_site`), so they stay the limit.
Where there are fewer workers than cores, each of ours has several threads; the others have one, and
TensorFlow's workers two.

First our loss after some steps, with one worker and no overlap, must equal that of one process: the PS begin
with the peers' initial rows, which they load from a checkpoint. Our PS hold the rows that were trained (0.5
of the table's 10.3 million), in the order of their first push; the peers hold all.

The last line has the lowest ratio of all runs of Wide & Deep (`over_tf_ps`, `over_hogwild`, ...), those of
the others (`over_tf_ps_xdeepfm`, `over_tf_ps_dcnv2`, ...), and all results (`runs`). `cpu_of_*` are the same
ratios of CPU time per step. What was not measured says so.

Needs the peers' scripts (`--peers DIR`), which are not part of this repository.

    python benchmarks/ps_throughput.py --venv-tf DIR [--whole] [--models dcnv2 --workers 1 2 4 --ps 1 2]

By default Wide & Deep for 2 s in each of 3 rounds, beside hogwild and one process: a minute. `--whole`: all
models, 12 s, and beside frames and torch's RPC too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from lengths import parsed, print_figures
from ps_runs import MODELS, Run, ours

from dlrover_nb.core.runtime.checkpoints import ps_checkpoint
from dlrover_nb.core.runtime.kernels import VARIABLE, kernel
from dlrover_nb.core.runtime.store import StorePart
from dlrover_nb.core.structs.training.checkpoints import PartSource

if TYPE_CHECKING:
    from collections.abc import Iterable

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent.parent / "shared" / "peers"
TCP = ("tcp", "tcp_trusted", "tcp_plain", "tcp_curve")
EXACT_STEPS = {"wide_deep": 150, "dcnv2": 40, "xdeepfm": 20}
NOT_MEASURED = "not measured"
# Each step of xDeepFM in torch allocates new large tensors: page faults double the time of the peers. Ours
# needs no such settings: a worker has its own.
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    "MALLOC_TOP_PAD_": "268435456",
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", type=Path, default=PEERS)
    parser.add_argument(
        "--own-model",
        action="store_true",
        help="ours trains the product's module of the model, not the peers' (the same mathematics); "
        "equality is shown with the peers'",
    )
    parser.add_argument(
        "--tf-steps-per-call",
        type=int,
        default=5,
        help="steps that a worker of TensorFlow makes per order of its chief; 5 were faster than its usual 1",
    )
    parser.add_argument(
        "--venv-tf",
        type=Path,
        default=os.environ.get("DLROVER_NB_VENV_TF"),
        help="virtual environment of TensorFlow, or DLROVER_NB_VENV_TF; without it: not beside it",
    )
    parser.add_argument("--models", "--model", nargs="+", default=["wide_deep"], choices=MODELS)
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--ps", type=int, nargs="+", default=[1])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--kernel", default=kernel().NAME, choices=("numpy", "c"), help="ours and the peers'")
    parser.add_argument("--exact-steps", type=int, help="0: do not compare losses first")
    parser.add_argument("--tcp", action="store_true", help="also over TCP, as between hosts")
    return parsed(parser, models=list(MODELS), seconds=12)


def script(python: str, run: Run, path: Path, *options: str, site: Path | None = None) -> dict[str, Any]:
    """Run a program that prints its result as JSON; `site` stands first on its path of Python."""
    command = [python, str(path), "--model", run.model, *options]
    environment = os.environ | MALLOC
    if site is not None:
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
    result = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if result.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stderr[-2000:]}")
    return json.loads(result.stdout.splitlines()[-1])


def initial_checkpoint(path: Path) -> PartSource:
    """Write a checkpoint with the peers' initial rows, of all ids that are in the batches."""
    from ctr.data import make_batches
    from ctr.hyperparameters import INITIAL_SUM
    from ctr.store import initial_table

    ids = np.unique(make_batches()[0])
    values = initial_table()[ids]
    table = np.concatenate([values, np.full_like(values, INITIAL_SUM)], axis=1)
    written = ps_checkpoint.write(path, StorePart(ids, table, 0, np.empty((2, 0), np.float32)))
    return PartSource(str(path), written.sha256)


def assert_same_losses(model: str, n_ps: int, options: argparse.Namespace) -> dict[str, Any]:
    """Refuse to compare speed with one process before the losses are equal."""
    n_step = EXACT_STEPS[model] if options.exact_steps is None else options.exact_steps
    if not n_step:
        return {}
    with tempfile.TemporaryDirectory(prefix="dlb") as folder:
        initial = (initial_checkpoint(Path(folder) / "initial"),)
        run = Run(str(options.peers), model, 1, n_ps, 0, max_steps=n_step, initial=initial)
        found = ours(run)["loss"]
    exact = ("--exact-steps", str(n_step))
    single = Path(run.peers) / "ctr" / "single.py"
    limit = ("--update", options.kernel, *exact)
    expected = script(sys.executable, run, single, *limit, site=HERE / "limit_site")["loss"]
    if abs(found - expected) > 1.5e-6:  # both are rounded to 6 digits
        raise SystemExit(
            f"{model}: loss of step {n_step} is {found} with {n_ps} PS, {expected} in one process"
        )
    return {"exact_steps": n_step, "loss": found, "loss_of_one_process": expected}


def one_round(run: Run, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    scripts, site = Path(run.peers) / "ctr", HERE / "limit_site"
    seconds = ("--seconds", str(run.seconds))
    workers = ("--workers", str(run.n_worker))
    limit = ("--kernel", options.kernel)
    update = ("--update", options.kernel)
    rpc = ("--peers", run.peers, *seconds, *workers, *limit)
    python = sys.executable
    results = {
        "ours": ours(run),
        "in_turn": ours(replace(run, overlap=False)),
        **({"frames": ours(replace(run, carrier="frames"))} if options.whole else {}),
        **{carrier: ours(replace(run, carrier=carrier)) for carrier in TCP if options.tcp},
        "hogwild": script(python, run, scripts / "hogwild.py", *seconds, *workers, *limit, site=site),
        "single": script(python, run, scripts / "single.py", *seconds, *update, site=site),
    }
    if options.whole:
        results["torch_rpc"] = script(python, run, HERE / "torch_rpc.py", *rpc)
    if options.venv_tf is not None:
        python = str(options.venv_tf / "bin" / "python")
        calls = ("--steps-per-call", str(options.tf_steps_per_call))
        results["tf_ps"] = script(python, run, scripts / "tf_ps.py", *seconds, *workers, *calls)
    return results


def measure(run: Run, options: argparse.Namespace) -> dict[str, Any]:
    exact = assert_same_losses(run.model, run.n_ps, options)
    print(f"\n{run.model}, {run.n_worker} workers, {run.n_ps} PS: {exact}")
    rounds = []
    for number in range(options.rounds):
        rounds.append(one_round(run, options))
        cells = (f"{name} {r['samples_s']:,} ({r['cpu_ms_per_step']} ms)" for name, r in rounds[-1].items())
        print(f"round {number + 1}: " + ", ".join(cells), flush=True)
    summary: dict[str, Any] = {
        "model": run.model,
        "workers": run.n_worker,
        "threads": run.n_thread,
        "ps": run.n_ps,
        "own_model": run.own_model,
        "kernel": options.kernel,
        "seconds": run.seconds,
        **exact,
    }
    for name in rounds[0]:
        summary[f"{name}_samples_per_s"] = statistics.median(r[name]["samples_s"] for r in rounds)
        summary[f"{name}_cpu_ms_per_step"] = statistics.median(r[name]["cpu_ms_per_step"] for r in rounds)
        if name != "ours":
            ratios = [r["ours"]["samples_s"] / r[name]["samples_s"] for r in rounds]
            summary[f"over_{name}"] = round(statistics.median(ratios), 3)
            summary[f"lowest_over_{name}"] = round(min(ratios), 3)
            cost = (r[name]["cpu_ms_per_step"] / r["ours"]["cpu_ms_per_step"] for r in rounds)
            summary[f"cpu_of_{name}"] = round(statistics.median(cost), 3)
    summary["in_turn_over_hogwild"] = ratio(rounds, "in_turn", "hogwild")
    for other in TCP[1:] if options.tcp else ():
        summary[f"tcp_over_{other}"] = ratio(rounds, "tcp", other)
    return summary


def ratio(rounds: list[dict[str, dict[str, Any]]], one: str, other: str) -> float:
    """Return the median of the ratios of samples per second within a round."""
    return round(statistics.median(r[one]["samples_s"] / r[other]["samples_s"] for r in rounds), 3)


def lowest(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the lowest ratio of each model and peer, also those that were not measured."""
    peers = product(("over", "lowest_over", "cpu_of"), ("hogwild", "single", "torch_rpc", "tf_ps"))
    keys = [*(f"{kind}_{peer}" for kind, peer in peers), "in_turn_over_hogwild"]
    figures: dict[str, Any] = {}
    for model, key in product(MODELS, keys):
        ratios = [run[key] for run in runs if run["model"] == model and key in run]
        figures[key + ("" if model == "wide_deep" else f"_{model}")] = min(ratios, default=NOT_MEASURED)
    return figures


def measured(options: argparse.Namespace) -> Iterable[dict[str, Any]]:
    for model, n_ps, n_worker in product(options.models, options.ps, options.workers):
        run = Run(
            str(options.peers),
            model,
            n_worker,
            n_ps,
            options.seconds,
            overlap=True,
            own_model=options.own_model,
            n_thread=max(1, (os.cpu_count() or 1) // n_worker),
        )
        summary = measure(run, options)
        print(json.dumps(summary), flush=True)
        yield summary


def main() -> None:
    options = arguments()
    options.peers = options.peers.resolve()
    sys.path.insert(0, str(options.peers))
    os.environ[VARIABLE] = options.kernel
    runs = list(measured(options))
    print_figures("ps_throughput", {**lowest(runs), "runs": runs})


if __name__ == "__main__":
    main()
