"""How long training waits for a checkpoint of 1 and of 4 GiB, and how fast it goes on meanwhile.

First in real jobs (`checkpoint_job`): `blocking_ms`, `pause_ms` and `cpu_while_copying` are medians over
their checkpoints, `..._range` their lowest and highest. With `--whole` in a job of 4 GiB too
(`blocking_ms_4gib`), where memory is free for it (`skipped` says so else), and all that follows is longer.

Then the steps alone, with parameters that lie still. Each round measures in turn: a plain copy of the same
arrays into a buffer of the same size that was written before; our save, of which training waits for
`blocking_s`, with `copied_s` until it is in memory and `persist_s` more until it is in a file; torch.save of
the same arrays to the same disk; and, where a script is named that measures DLRover's flash checkpoint and
prints one line of JSON, that script. Then saves to memory and to disk in turn without a gap, each of which is
read back from its file and compared. The first save uses memory allocated beforehand, as in a PS; the second
takes it meanwhile.

    python benchmarks/checkpoint.py [--whole] [--gib 1 --job-gib 1 4 --rounds 5 --pairs 200 --pair-mib 16]
        [--peer-python VENV/bin/python --peer-script flash_checkpoint.py --peer-rounds 3]

Needs three times the size in memory, twice in /dev/shm and, in the temporary folder, twice the size beside
all pairs. One line of JSON comes last; seconds are medians, lists are in the order measured.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import checkpoint_job
import numpy as np
import psutil
import torch
from lengths import parsed, print_figures

from dlrover_nb.core.runtime.checkpoints import (
    CopyEnded,
    FlashCheckpoint,
    MemoryClaim,
    Persisted,
    free_memory,
    memory_image,
    ps_checkpoint,
    read_url,
)
from dlrover_nb.core.runtime.checkpoints.memory_names import SHM, run_name
from dlrover_nb.core.runtime.store import StorePart
from dlrover_nb.core.runtime.store.cut import Cut

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.runtime.checkpoints import Image

JOB = "benchmark"
ROW_FLOATS = 34  # of the built-in models with Adagrad: 17 values, 17 sums
N_DENSE = 100_000
LIMIT_S = 300.0
N_CHECKPOINT = 4  # of each job
RANGED = ("blocking_ms", "pause_ms")


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def make_part(n_byte: int, seed: int = 0) -> StorePart:
    """Return the parameters of one PS, about `n_byte` of them."""
    rng = np.random.default_rng(seed)
    n_row = n_byte // (8 + 4 * ROW_FLOATS)
    dense = rng.random((2, N_DENSE), np.float32)
    return StorePart(np.arange(n_row), rng.random((n_row, ROW_FLOATS), np.float32), 0, dense)


def results(flash: FlashCheckpoint, n: int, kind: type[Any] = Persisted) -> list[Any]:
    """Wait for `n` files, or copies."""
    found: list[Any] = []
    while len(found) < n:
        if not select.select([flash], [], [], LIMIT_S)[0]:
            raise TimeoutError(f"{n - len(found)} of {kind.__name__} did not come within {LIMIT_S:g} s")
        for result in flash.poll():
            if not isinstance(result, kind):
                raise RuntimeError(result.why)  # noqa: TRY004 - the reason of the failure
            found.append(result)
    return found


def is_equal(one: Image, other: Image) -> bool:
    same = one.header == other.header and list(one.arrays) == list(other.arrays)
    return same and all(np.array_equal(one.arrays[name], other.arrays[name]) for name in one.arrays)


class Speeds:
    """Saves and loads of one large part."""

    def __init__(self, whole: StorePart, folder: Path) -> None:
        self.whole, self.image, self.folder = whole, ps_checkpoint.image_of(whole), folder
        self.buffers = {name: np.zeros_like(array) for name, array in self.image.arrays.items()}
        self.flash = FlashCheckpoint(JOB, folder, "ps-0")
        self.number = 0
        self.times: dict[str, list[float]] = {}
        self.plain()  # the first copy would pay for the pages

    def note(self, name: str, value: float) -> None:
        self.times.setdefault(name, []).append(round(value, 4))

    def plain(self) -> None:
        for name, array in self.image.arrays.items():
            np.copyto(self.buffers[name], array)

    def save(self) -> None:
        """Begin a save: what training waits for."""
        self.number += 1
        fill = Cut(self.whole).copy_to
        if not self.flash.begin(self.number, self.image.header, self.image.arrays, fill):
            raise RuntimeError(f"no room for {self.image.header} in {SHM}")

    def copied(self) -> None:
        """Wait until it is in memory, and order its file."""
        (ended,) = results(self.flash, 1, CopyEnded)
        if ended.memory is None:
            raise RuntimeError(ended.why)
        self.part = ended.memory
        self.flash.persist(self.number, str(self.folder / "part"))

    def torch_save(self) -> None:
        tensors = {name: torch.from_numpy(array) for name, array in self.image.arrays.items()}
        torch.save(tensors, self.folder / "torch.pt")

    def first(self) -> None:
        """Save once into each buffer: one allocated beforehand, and a new one."""
        self.flash.expect(sum(array.nbytes for array in self.image.arrays.values()))
        while self.flash._buffers.is_busy:  # noqa: SLF001 - memory is taken; a PS trains meanwhile
            time.sleep(0.01)
        for name in ("first_blocking_s", "unexpected_blocking_s"):
            self.note(name, seconds(self.save))
            self.copied()
            results(self.flash, 1)

    def round(self) -> None:
        self.note("plain_copy_s", seconds(self.plain))
        self.note("blocking_s", seconds(self.save))
        self.note("copied_s", seconds(self.copied))
        self.note("persist_s", seconds(lambda: results(self.flash, 1)))
        self.note("torch_save_s", seconds(self.torch_save))
        (self.folder / "torch.pt").unlink()

    def loads(self) -> bool:
        """Read back from memory and from the file; whether both are equal to what was saved."""
        self.save()
        self.copied()
        (done,) = results(self.flash, 1)
        self.note("load_memory_s", seconds(lambda: self._from_memory(copies=True)))
        self.note("load_file_s", seconds(lambda: self._from_file(done, copies=True)))
        return self._from_memory() and self._from_file(done)

    def _from_memory(self, *, copies: bool = False) -> bool:
        with memory_image(self.part) as image:
            return self._copied(image) if copies else is_equal(image, self.image)

    def _from_file(self, done: Persisted, *, copies: bool = False) -> bool:
        image = read_url(done.url, done.sha256)
        return self._copied(image) if copies else is_equal(image, self.image)

    def _copied(self, image: Image) -> bool:
        for name, array in image.arrays.items():
            np.copyto(self.buffers[name], array)
        return True


def pairs(n: int, n_byte: int, folder: Path) -> dict[str, int]:
    """Save to memory and to disk in turn without a gap; count what cannot be read back unchanged."""
    part = make_part(n_byte)
    flash = FlashCheckpoint(JOB, folder, "ps-1")
    done: list[Persisted] = []
    try:
        for number in range(n):
            for is_disk in (False, True):
                part.table[:, 0] = 2 * number + is_disk
                image = ps_checkpoint.image_of(part)
                flash.copy(2 * number + is_disk, image.header, image.arrays)
            flash.persist(2 * number + 1, str(folder / f"pair-{number}"))
            done += [result for result in flash.poll() if isinstance(result, Persisted)]
        done += results(flash, n - len(done))
    finally:
        flash.close(unlink=True)
    good = 0
    for number, result in enumerate(done):
        part.table[:, 0] = 2 * number + 1
        is_right = (result.number, result.url) == (2 * number + 1, str(folder / f"pair-{number}"))
        good += is_right and is_equal(read_url(result.url, result.sha256), ps_checkpoint.image_of(part))
        Path(result.url).unlink()
    return {"pairs": n, "lost": n - good}


def peer(python: str, script: str, folder: Path) -> dict[str, Any]:
    """Run a script that measures DLRover; its last line is JSON."""
    command = [python, script, "--tmp", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    if ran.returncode:
        raise RuntimeError(f"{script} failed: {ran.stderr.strip()[-3000:]}")
    found: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])["one_process"]
    return found


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    part = make_part(round(options.gib * (1 << 30)))
    speeds = Speeds(part, folder)
    peers = []
    try:
        speeds.first()
        for number in range(options.rounds):
            speeds.round()
            if options.peer_script and number < options.peer_rounds:
                peers.append(peer(options.peer_python, options.peer_script, folder))
        is_equal_again = speeds.loads()
    finally:
        speeds.flash.close(unlink=True)
    medians = {name: statistics.median(values) for name, values in speeds.times.items()}
    return {
        **medians,
        "over_plain_copy": round(ratio(speeds.times, "blocking_s", "plain_copy_s"), 3),
        "over_torch_save": round(ratio(speeds.times, "blocking_s", "torch_save_s"), 4),
        "restored_equal": is_equal_again,
        "rounds": speeds.times,
        **beside(speeds.times["blocking_s"], peers),
        **pairs(options.pairs, options.pair_mib << 20, folder),
    }


def ratio(times: dict[str, list[float]], ours: str, other: str) -> float:
    """Return the median of the rounds' ratios."""
    return statistics.median(a / b for a, b in zip(times[ours], times[other], strict=True))


def beside(blocking_s: list[float], peers: list[dict[str, Any]]) -> dict[str, Any]:
    if not peers:
        return {}
    theirs = [statistics.median(found["flash_memory_next_s"]) for found in peers]
    both = zip(blocking_s, theirs, strict=False)
    return {
        "over_dlrover": round(statistics.median(ours / other for ours, other in both), 3),
        "dlrover_blocking_s": theirs,
        "dlrover_first_blocking_s": [found["flash_memory_first_s"] for found in peers],
        "dlrover_on_disk_s": [found["flash_disk_on_disk_s"] for found in peers],
        "dlrover_load_and_copy_s": [found["flash_load_and_copy_s"] for found in peers],
    }


def jobs(sizes_gib: list[float], tmp: str | None) -> dict[str, Any]:
    """Measure real jobs, one after the other, whose PS hold so much."""
    found: dict[str, Any] = {"jobs": {}, "skipped": []}
    for gib in sizes_gib:
        name = "" if gib == 1 else f"_{gib:g}gib"
        needed_gib, free_gib = (
            checkpoint_job.MOST_COPIES * gib + 2,
            psutil.virtual_memory().available / (1 << 30),
        )
        if needed_gib > free_gib:
            found["skipped"].append(
                f"{gib:g} GiB need {needed_gib:.1f} GiB of memory, {free_gib:.1f} are free"
            )
            continue
        each = checkpoint_job.run(gib, N_CHECKPOINT, tmp)
        found["jobs"][f"{gib:g}"] = each
        for key in each[0]:
            values = [one[key] for one in each]
            found[key + name] = round(statistics.median(values), 3)
            if key in RANGED:
                found[f"{key}{name}_range"] = [min(values), max(values)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gib", type=float, default=0.25)
    parser.add_argument("--job-gib", type=float, nargs="*", default=[1.0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--pair-mib", type=int, default=16)
    parser.add_argument("--tmp", default=None, help="where files are written")
    parser.add_argument("--peer-python", default="")
    parser.add_argument("--peer-script", default="")
    parser.add_argument("--peer-rounds", type=int, default=3)
    options = parsed(parser, gib=1.0, job_gib=[1.0, 4.0], pairs=200)
    in_jobs = jobs(options.job_gib, options.tmp)
    with tempfile.TemporaryDirectory(prefix="dlb", dir=options.tmp) as name:
        claim = MemoryClaim(JOB, name)
        try:
            found = measure(options, Path(name))
        finally:
            claim.close()
            free_memory(JOB, name)
    found["left_in_shm"] = len(list(SHM.glob(f"{run_name(JOB, name)}*")))
    about = {"benchmark": "checkpoint", "gib": options.gib, "cpus": os.cpu_count()}
    print_figures("checkpoint", {**about, **in_jobs, **found})


if __name__ == "__main__":
    main()
