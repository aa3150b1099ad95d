"""Run each benchmark as it is by default, one after the other: whether it ends, and what it takes.

Benchmarks use the product's inside, and nothing else says that one no longer fits it. CPU time is that of the
benchmark and of all processes that it began, read every half second: what lives shorter counts too little.

    python benchmarks/every.py [--only shards fit] [--limit-s 600]

The last line has those that failed, with the end of what they said, and the seconds of all.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from lengths import parsed, print_figures

HERE = Path(__file__).parent
MARK, POLL_S, END_S = "DLROVER_NB_BENCHMARK_RUN", 0.5, 30.0
N_WORD = 200  # of what a failed one said last


def benchmarks() -> list[str]:
    """Return the names of all other benchmarks: programs whose docstring says how people run them."""
    scripts = {path.stem: path.read_text() for path in sorted(HERE.glob("*.py"))}
    return [
        name
        for name, text in scripts.items()
        if f"    python benchmarks/{name}.py" in text and name != Path(__file__).stem
    ]


def cpu_of(mark: str) -> dict[int, float]:
    """Return the CPU seconds so far of processes with this mark in their environment, by pid."""
    seconds: dict[int, float] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark:
                seconds[process.pid] = sum(process.cpu_times()[:2])
    return seconds


def run(name: str, limit_s: float) -> tuple[float, float, str]:
    """Run one; return its seconds by the clock and of the processor, and why it failed, if it did."""
    mark, began_s, seconds = f"{os.getpid()}-{name}", time.monotonic(), dict[int, float]()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [sys.executable, str(HERE / f"{name}.py")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {MARK: mark},
        )
        try:
            while process.poll() is None and time.monotonic() < began_s + limit_s:
                seconds |= cpu_of(mark)
                time.sleep(POLL_S)
            is_late = process.poll() is None
        finally:
            process.terminate()  # it stops its jobs, where it has not ended
            process.wait(END_S)
        output.seek(0)
        last = output.read()[-N_WORD:]
    why = f"not done within {limit_s:g} s" if is_late else last if process.returncode else ""
    return time.monotonic() - began_s, sum(seconds.values()), why


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=benchmarks(), metavar="NAME")
    parser.add_argument("--limit-s", type=float, default=600.0, help="of each")
    options = parsed(parser)
    failed, took_s = {}, {}
    for name in options.only:
        wall_s, cpu_s, why = run(name, options.limit_s)
        took_s[name] = round(wall_s)
        print(f"{name:20} {wall_s:6.0f} s {cpu_s:6.0f} s of CPU  {'failed' if why else 'done'}", flush=True)
        if why:
            failed[name] = why
    print_figures("every", {"n": len(took_s), "failed": failed, "seconds": took_s})
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
