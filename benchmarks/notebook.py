"""Costs of the notebook integration: loading, submitting, live views, saved files.

Each part is measured by itself; choose some with ``--parts``. Targets, on a machine of two cores:

========  ==========================================================================  ==================
part      figure                                                                      target
========  ==========================================================================  ==================
load      load_ext_ms: ``%load_ext dlrover_nb`` in a new shell, IPython's start apart  <= 500
submit    submit_sim_ms, submit_ray_ms: ``%dlrover submit`` until it returns           <= 200
cli       cli_call_s: ``dlrover-nb show JOB`` in a shell, of an ended job on Ray        <= 1.0
          cli_call_cpu_s: the processor time of it, which a busy machine changes little
lab       lab_to_plot_s: JupyterLab's start to the first moving plot, with its stages  <= 30
          lab_to_proposal_s: the same to the first sentence with a proposal           <= 30
one       one_paint_ms_p50: a job's live view, from tick to paint                      <= 100
many      many_paint_ms_p50, many_cpu_percent, many_bytes_per_s: 50 jobs, once a s     <= 100, 5, 5000
heap      heap_mib_per_minute: of the browser, 50 lines growing once a second          about 0
cycles    cycles_rss_growth_mib: of the server, after 40 pages opened and closed       <= 5
saved     saved_bytes: the quick start, executed                                       <= 1 MB
========  ==========================================================================  ==================

The parts with a browser need Debian's chromium; `live_views.py` describes the measurement. They measure
served pages: in a notebook the same models are sent over Jupyter's comm.

    python benchmarks/notebook.py [--parts load many] [--minutes 10]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lengths import parsed

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "00_quickstart.ipynb"
HEAVY = ("panel", "bokeh", "ray", "kubernetes", "torch", "pandas", "scipy", "sqlalchemy")
TARGETS = {
    "load_ext_ms": 500.0,
    "submit_sim_ms": 200.0,
    "submit_ray_ms": 200.0,
    "cli_call_s": 1.0,
    "lab_to_plot_s": 30.0,
    "lab_to_proposal_s": 30.0,
    "one_paint_ms_p50": 100.0,
    "one_cpu_percent": 5.0,
    "many_paint_ms_p50": 100.0,
    "many_cpu_percent": 5.0,
    "many_bytes_per_s": 5000.0,
    "cycles_rss_growth_mib": 5.0,
    "saved_bytes": 1_000_000.0,
    "one_outside_requests": 0.0,
    "one_unnamed_controls": 0.0,
    "many_outside_requests": 0.0,
    "many_unnamed_controls": 0.0,
}
SHELL = """
import json, sys, time
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
"""
LOAD = """
before = set(sys.modules)
began_s = time.perf_counter()
shell.run_line_magic("load_ext", "dlrover_nb")
took_ms = 1000 * (time.perf_counter() - began_s)
heavy = sorted({name.partition(".")[0] for name in set(sys.modules) - before} & set(%r))
print(json.dumps([took_ms, heavy]))
"""
SUBMIT = """
from contextlib import redirect_stdout, redirect_stderr
import io
took_ms = []
shell.run_line_magic("load_ext", "dlrover_nb")
with redirect_stdout(io.StringIO()):
    shell.run_line_magic("dlrover", %(connect)r)
    try:
        for i in range(%(times)d):
            began_s = time.perf_counter()
            shell.run_line_magic("dlrover", f"submit bench-{i} --mode manual")
            took_ms.append(1000 * (time.perf_counter() - began_s))
            shell.run_line_magic("dlrover", f"stop bench-{i}")
    finally:
        shell.run_line_magic("dlrover", "shutdown --force")
print(json.dumps(took_ms))
"""


def in_new_process(code: str, limit_s: float = 240.0) -> Any:
    """Run code in a separate process and return the value of its last line."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=limit_s, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"a measured process failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def load(times: int) -> dict[str, Any]:
    rows = [in_new_process(SHELL + LOAD % (HEAVY,)) for _ in range(times)]
    return {
        "load_ext_ms": round(statistics.median(ms for ms, _ in rows), 1),
        "load_ext_imports": rows[0][1],
    }


def submit(times: int, *, on_ray: bool) -> dict[str, Any]:
    """Time submits; the first of a session also loads modules and is reported separately."""
    figures = {}
    for kind in ("sim", "ray") if on_ray else ("sim",):
        first, *rest = in_new_process(SHELL + SUBMIT % {"connect": f"connect {kind}", "times": times + 1})
        figures |= {
            f"submit_{kind}_ms": round(statistics.median(rest), 1),
            f"submit_{kind}_first_ms": round(first, 1),
        }
    return figures


def cli(times: int) -> dict[str, Any]:
    """Time calls of the command line, each a process; the job has ended, so that the machine is idle."""
    command = [sys.executable, "-m", "dlrover_nb.cli"]

    def call(*words: str) -> tuple[float, float]:
        """Return the seconds that a call took, on the clock and of processors."""
        began_s, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"dlrover-nb {' '.join(words)} failed:\n{done.stderr[-2000:]}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return time.perf_counter() - began_s, cpu_s

    try:
        call("submit", "bench-cli", "--wait")
        calls = {
            "call": ("show", "bench-cli"),
            "plan": ("plan", "bench-cli"),
            "jobs": ("jobs",),
            "help": ("--help",),
        }
        figures = {}
        for name, words in calls.items():
            clock_s, cpu_s = zip(*(call(*words) for _ in range(times)), strict=True)
            figures[f"cli_{name}_s"] = round(statistics.median(clock_s), 2)
            figures[f"cli_{name}_cpu_s"] = round(statistics.median(cpu_s), 2)
        return figures
    finally:
        call("shutdown", "--force")


def saved(folder: Path) -> dict[str, Any]:
    """Execute the quick start as a user would, and return the size of the file."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    from dlrover_nb.core.backends.ray.head import running_head, stop_head

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    began_s = time.monotonic()
    try:
        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    except CellExecutionError as error:
        raise SystemExit(f"the quick start does not run: {error.ename}: {error.evalue}") from error
    finally:
        if running_head() is not None:  # a cell before the shutdown failed
            stop_head()
    text = nbformat.writes(notebook)
    return {"saved_bytes": len(text.encode()), "saved_seconds": round(time.monotonic() - began_s, 1)}


def live(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    import live_views as views
    from first_plot import to_first_plot

    if not views.is_there():
        needing = ", ".join(part for part in PARTS if part in IN_A_BROWSER)
        raise SystemExit(f"the parts {needing} need {views.CHROMIUM}; name other --parts")
    figures: dict[str, Any] = {}
    with views.chromium() as browser:
        if "lab" in options.parts:
            figures |= to_first_plot(browser, folder)
        if "one" in options.parts:
            figures |= views.one_job(browser, options.seconds, options.speed)
        if "many" in options.parts:
            figures |= views.many_jobs(browser, options.jobs, options.seconds, options.speed)
        if "heap" in options.parts:
            figures |= views.heap(browser, options.jobs, options.minutes, options.speed)
        if "cycles" in options.parts:
            figures |= views.cycles(browser, options.jobs, options.cycles)
    return figures


PARTS = ("load", "submit", "cli", "lab", "one", "many", "heap", "cycles", "saved")
IN_A_BROWSER = {"lab", "one", "many", "heap", "cycles"}


def measure(options: argparse.Namespace, folder: Path, figures: dict[str, Any]) -> None:
    """Add the figures of each part to `figures`, which keeps them when a later part fails."""
    if "load" in options.parts:
        figures |= load(options.times)
    if "submit" in options.parts:
        figures |= submit(options.times, on_ray=not options.no_ray)
    if "cli" in options.parts:
        figures |= cli(options.times)
    if set(options.parts) & IN_A_BROWSER:
        figures |= live(options, folder)
    if "saved" in options.parts:
        figures |= saved(folder)


def missed(figures: dict[str, Any]) -> list[str]:
    return [name for name, most in TARGETS.items() if name in figures and figures[name] > most]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS[:3], metavar="PART", help=", ".join(PARTS)
    )
    parser.add_argument("--times", type=int, default=5, help="loads, submits of each kind, calls in a shell")
    parser.add_argument("--seconds", type=float, default=12.0, help="that a live view is watched")
    parser.add_argument("--minutes", type=float, default=0.5, help="that the browser's heap is watched")
    parser.add_argument("--cycles", type=int, default=40, help="pages opened and closed")
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--speed", type=float, default=30.0, help="simulated seconds in a second")
    parser.add_argument("--no-ray", action="store_true", help="submit to the simulated cluster alone")
    options = parsed(parser, parts=PARTS)
    figures: dict[str, Any] = {}
    began_s = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="dlb") as name:
            os.environ |= {
                f"XDG_{kind}_HOME": f"{name}/{kind.lower()}" for kind in ("STATE", "DATA", "CONFIG")
            }
            measure(options, Path(name), figures)
    finally:
        for key, value in figures.items():
            target = f"   (target {TARGETS[key]:g})" if key in TARGETS else ""
            print(f"{key:28} {value}{target}")
    seconds = round(time.monotonic() - began_s, 1)
    print(json.dumps({"benchmark": "notebook", **figures, "missed": missed(figures), "seconds": seconds}))


if __name__ == "__main__":
    main()
