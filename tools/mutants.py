"""Sample mutants of core code, run the cheap tests on each, and say how many of them the tests notice.

``python tools/mutants.py [--sample 300] [--seed 0] [--only core/sharding] [--more] [--least 0.9]`` goes
through the rooms below. For each it collects the tests once and notes which lines each of them reaches. Then
it forks a process per mutant, puts the changed code into the functions that are loaded, and runs the tests
that reach the line, the quickest first, until one fails. A mutant that hangs or runs out of memory is killed
too. The checkout is not written to. Each result is stored at once, so that an interrupted run goes on where
it stopped; build/mutants.json has those of the last run.

Only tests count that start no process: one that tries to fails, and is left out with those that fail anyway.
Those marked `more` cost five times as much as all others together, and `--more` runs them too.
Laws draw the same few examples each time. When code or tests have changed, the test that killed a mutant last
comes first, so that only survivors cost time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from mutant_source import Mutant, digest, sample

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "mutants"
RESULTS = ROOT / "build" / "mutants.json"
TESTS = "tests/core"
COORDINATION = (
    *("nodes/fencing", "checkpoints/checkpoint_coordinator", "checkpoints/copy_coordinator"),
    "servers/migration_coordinator",
)


def say(text: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def whole(folder: str) -> tuple[str, ...]:
    """Return the modules of a room."""
    return tuple(str(path.relative_to(ROOT)) for path in sorted((ROOT / "dlrover_nb" / folder).rglob("*.py")))


def own_master_tests(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return files of tests of the job master of our own jobs."""
    return tuple(f"{TESTS}/master/own/{name}.py" for name in names)


def master_tests() -> tuple[str, ...]:
    """Return files of tests of the job master in virtual time."""
    paths = sorted((ROOT / TESTS / "master/own").rglob("test_*.py"))
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    return tuple(path for path, text in texts.items() if "from support.master.master_world import" in text)


ROOMS = {  # each with its modules, and the tests that may reach them
    "core/sharding": (
        whole("core/sharding"),
        (
            *(f"{TESTS}/sharding", f"{TESTS}/master/external/test_service_laws.py"),
            *own_master_tests(("rows/test_quarantine", "rows/test_skipped_batches", "rows/test_streams")),
            *own_master_tests(("test_master_origin", "nodes/test_absent_master")),
        ),
    ),
    "core/master": (
        tuple(f"dlrover_nb/core/master/own/{name}.py" for name in COORDINATION),
        master_tests(),
    ),
    "core/memory": (
        whole("core/memory"),
        (f"{TESTS}/memory", f"{TESTS}/controller/plans/test_less_memory.py"),
    ),
    "core/planner": (
        whole("core/planner"),
        (f"{TESTS}/planner", f"{TESTS}/controller"),
    ),
    "core/controller": (
        whole("core/controller"),
        (f"{TESTS}/controller", f"{TESTS}/simulator"),
    ),
}
MORE = "not (release or pods or kube or ray or browser)"
CHEAP = f"not more and {MORE}"
KILLED, SURVIVED = "killed", "survived"


def main() -> int:
    """Run what is left of the sample, print the table, and return 1 when too few are killed."""
    options = parsed()
    mutants = []
    for room in ROOMS:
        if room.startswith(options.only) or options.only.startswith(room):
            drawn = [
                each for each in draw(room, options) if each.path.startswith(f"dlrover_nb/{options.only}")
            ]
            run_room(room, drawn, MORE if options.more else CHEAP)
            mutants += drawn
    return report(mutants, options.least)


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=300, help="mutants to draw")
    parser.add_argument("--seed", type=int, default=0, help="another one draws other lines")
    parser.add_argument("--only", default="", help="a room or module, such as core/sharding")
    parser.add_argument("--more", action="store_true", help="run tests that are marked `more` too")
    parser.add_argument("--least", type=float, default=0.9, help="share that must be killed")
    return parser.parse_args()


def draw(room: str, options: argparse.Namespace) -> list[Mutant]:
    """Return the sample of a room, from the file of an earlier run where its code is the same.

    Each room gives the same number, as the smallest are those that must not be wrong.
    """
    n, paths = options.sample // len(ROOMS), [ROOT / path for path in ROOMS[room][0]]
    name = digest(n, options.seed, *(path.read_text() for path in paths))[:16]
    stored = BUILD / f"sample-{room.replace('/', '-')}-{name}.json"
    if not stored.exists():
        say(f"{room}: drawing {n} mutants")
        stored.parent.mkdir(parents=True, exist_ok=True)
        documents = [each.document() for each in sample(ROOT, room, paths, n, options.seed)]
        stored.write_text(json.dumps(documents))
    return [Mutant(**each) for each in json.loads(stored.read_text())]


def run_room(room: str, mutants: list[Mutant], marks: str) -> None:
    """Run pytest on the tests of a room, with the plugin that forks a process for each mutant."""
    modules = [path for paths, _ in ROOMS.values() for path in paths]  # reach is noted once for all
    job = BUILD / f"{room.replace('/', '-')}.json"
    documents = [{**each.document(), "id": each.id} for each in mutants]
    what = {"room": room, "modules": modules, "marks": marks, "mutants": documents}
    job.write_text(json.dumps({**what, "results": str(results_of(room))}))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tools"), os.environ.get("PYTHONPATH", ""))),
        "DLROVER_NB_MUTANTS": str(job),
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    quiet = ("-q", "-s", *(f"-pno:{name}" for name in ("cacheprovider", "faulthandler", "progress")))
    command = [sys.executable, "-m", "pytest", "-p", "mutant_runs", *quiet, "-m", marks, *ROOMS[room][1]]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def results_of(room: str) -> Path:
    """Return the file with what became of a room's mutants, in this run and in earlier ones."""
    return BUILD / f"results-{room.replace('/', '-')}.json"


def report(mutants: list[Mutant], least: float) -> int:
    """Print the survivors and the table, and store the results."""
    results: dict[str, dict[str, object]] = {}
    for room in dict.fromkeys(each.room for each in mutants):
        results |= json.loads(results_of(room).read_text())
    RESULTS.write_text(json.dumps([results[each.id] for each in mutants], indent=1))
    rows: dict[str, list[dict[str, object]]] = defaultdict(list)
    for each in mutants:
        result = results[each.id]
        rows[each.room].append(result)
        if result["outcome"] == SURVIVED:
            say(f"\n{each.path}:{each.line} survived {result['n_test']} tests\n{each.diff}")
    say(f"\n{'room':<18}{'mutants':>8}{'killed':>8}{'survived':>9}{'CPU s each':>12}")
    every = [each for row in rows.values() for each in row]
    for room, row in (*rows.items(), ("all", every)):
        n_killed = sum(each["outcome"] == KILLED for each in row)
        seconds = sum(float(str(each["cpu_s"])) for each in row) / len(row)
        say(f"{room:<18}{len(row):>8}{n_killed:>8}{len(row) - n_killed:>9}{seconds:>12.1f}")
    share = sum(each["outcome"] == KILLED for each in every) / len(every)
    say(f"{share:.1%} killed; at least {least:.0%} must be")
    return int(share < least)


if __name__ == "__main__":
    sys.exit(main())
