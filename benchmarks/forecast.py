"""Memory forecasts on real series: embedding growth, memory hogs, pods.

- Criteo: distinct ids at 40,000, 60,000 and 80,000 samples, from the first 20,000.
- Sock Shop: containers in which a hog repeatedly fills memory up to a limit of 1000 MiB: how long before
  the greatest use of the phase an alarm was raised, and how many alarms were raised in phases without a
  fault. The hog allocates and frees within one scrape (10-30 s), so that no growth is visible: the alarm
  comes from readings that scatter up to near the limit.
- Alibaba pods: error 5, 15 and 60 minutes ahead, from rolling origins, over that of "as now".
- Courses of a node's memory (`memory_shapes.py`) through the measurement and protection of a job: alarms on
  harmless ones, minutes from the first alarm until leaks have filled their node.
- Memory that is advised after a quarter of a run, against the peak of the whole run, on pods, containers
  without a fault, and these courses. A run is under-allocated where its peak exceeds what was advised (the
  failed estimate of xMem, arXiv 2510.21048; the under-allocation of SAP's ensemble for builds, arXiv
  2604.12673): the share of such runs is stated, and the mean of (advised - peak) / peak of all others. What
  is advised is that of a smaller request, `right_size.MARGIN` times the most by the end, without the least
  request of a node, and also where the product would not lower the request, as it saves too little.

The data may not be shipped with this repository; --shared names their folder.

    python benchmarks/forecast.py [--shared ../shared --stride 44 --every 4 --seeds 1] [--whole]
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from lengths import parsed, print_figures
from memory_shapes import RATE, fast, filling, harmless, played

from dlrover_nb.core.memory import Report, forecast, most_by_end
from dlrover_nb.core.memory.right_size import MARGIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt
    from memory_shapes import Shape

    from dlrover_nb.core.memory import MemoryForecast

    Floats = npt.NDArray[np.float64]

CRITEO_80K = 200_587  # given with the data, whose last 20,000 rows are not available
LIMIT_MIB = 1000.0
ALARM = 0.2  # as the controller's threshold
EVERY = 5  # reports (of one second) between two checks; two positive checks in a row are an alarm
LOOK_AHEAD_S = 300.0  # containers do not end: the length of a phase
AHEAD_S = {"5": 300.0, "15": 900.0, "60": 3600.0}
WINDOW = 120  # reports of 57 s
POD_MIB = 32_768.0  # the data give shares of an unknown size
ADVISED_AT = 0.25  # of a run


def ids_seen(folder: Path) -> dict[int, int]:
    """Return the distinct ids of all features after so many samples."""
    rows = pd.read_parquet(folder / "criteo_60k.parquet")
    columns = [rows[f"C{i}"].to_numpy() for i in range(1, 27)]
    seen = {
        n: sum(len(np.unique(column[:n][column[:n] >= 0])) for column in columns) for n in (40_000, 60_000)
    }
    return seen | {80_000: CRITEO_80K}


def embedding(shared: Path) -> dict[str, float]:
    folder = shared / "data" / "criteo"
    growth = pd.read_csv(folder / "embedding_id_growth_first20k.csv")
    n = np.concatenate([[0.0], growth["samples"].to_numpy(dtype=float)])
    total = np.concatenate([[0.0], growth["total_ids"].to_numpy(dtype=float)])
    line = np.polyfit(n, total, 1)
    print("Criteo ids, from 20,000 samples")
    print("samples   truth  forecast  error   90 % interval      straight line  error")
    errors: dict[str, float] = {}
    for end, truth in ids_seen(folder).items():
        found = forecast(n, total, limit_mib=np.inf, end=end, origin=0.0).at_end
        assert found is not None
        straight = float(np.polyval(line, end))
        print(
            f"{end:7,} {truth:7,} {found.mid:9,.0f} {found.mid / truth - 1:+6.1%} "
            f"{found.low:9,.0f}-{found.high:7,.0f} {straight:14,.0f} {straight / truth - 1:+6.1%}"
        )
        errors = {
            "embedding_error": round(abs(found.mid / truth - 1), 4),
            "embedding_error_line": round(abs(straight / truth - 1), 4),
        }
    return errors


def alarm_at(t: Floats, mib: Floats, first: int, *, limit_mib: float = LIMIT_MIB) -> float | None:
    """Return when two checks in a row found an OOM likely, None where none did."""
    before = False
    for i in range(first, len(t), EVERY):
        found = forecast(t[: i + 1], mib[: i + 1], limit_mib=limit_mib, end=t[i] + LOOK_AHEAD_S)
        likely = (found.oom_probability or 0.0) >= ALARM
        if likely and before:
            return float(t[i])
        before = likely
    return None


def phases(rows: pd.DataFrame, phase: str) -> Iterator[tuple[str, Floats, Floats]]:
    keys = ["fault_service", "fault", "run", "service"]
    for key, reports in rows[rows["phase"] == phase].groupby(keys):
        part = reports.drop_duplicates("time").sort_values("time")
        t = part["time"].to_numpy(dtype=float)
        yield "/".join(map(str, key)), t - t[0], part["mem_mib"].to_numpy(dtype=float)


def hogs(shared: Path) -> dict[str, float]:
    rows = pd.read_parquet(shared / "data" / "sockshop_mem" / "container_metrics.parquet")
    leads, full = [], []
    print("\nSock Shop hogs   greatest use, MiB   reached at, s   alarm at, s   lead, s")
    for name, t, mib in phases(rows, "anomalous"):
        where, fault, _, service = name.split("/")
        if fault != "mem" or where not in {"carts", "orders"} or service != where:
            continue
        alarm, top = alarm_at(t, mib, 7), float(t[mib.argmax()])
        lead = 0.0 if alarm is None else max(top - alarm, 0.0)
        leads.append(lead)
        full.append(alarm is not None and lead > 0)
        print(f"{name:16} {mib.max():18,.1f} {top:15,.0f} {alarm or float('nan'):13,.0f} {lead:9,.0f}")
    false, false_close, n_phase = [], [], 0
    for name, t, mib in phases(rows, "normal"):
        n_phase += 1
        if alarm_at(t, mib, 7) is not None:
            false.append(name)
        if alarm_at(t, mib, 7, limit_mib=1.25 * mib.max()) is not None:
            false_close.append(name)
    print(f"alarms in {n_phase} normal phases: {len(false)} {false}")
    print(f"  with a limit only a quarter above their greatest use: {len(false_close)} {false_close}")
    return {
        "oom_lead_s": statistics.median(leads),
        "hogs_foreseen": sum(full),
        "hogs": len(full),
        "phases_with_false_alarm": len(false),
        "phases_with_false_alarm_close_limit": len(false_close),
        "normal_phases": n_phase,
    }


def at(found: MemoryForecast, ahead_s: float) -> tuple[float, float, float]:
    """Return the middle, low and high of a forecast so far ahead; the present value if unknown."""
    if not found.known:
        return found.now, found.now, found.now
    x, *bands = np.asarray(found.fan).T
    mid, low, high = (float(np.interp(ahead_s, x, band)) for band in bands)
    return mid, low, high


def pods(shared: Path, stride: int) -> dict[str, object]:
    rows = pd.read_parquet(shared / "data" / "alibaba" / "genai_pod_mem_util.parquet")
    ours: dict[str, list[float]] = {name: [] for name in AHEAD_S}
    now: dict[str, list[float]] = {name: [] for name in AHEAD_S}
    line: dict[str, list[float]] = {name: [] for name in AHEAD_S}
    inside: dict[str, list[bool]] = {name: [] for name in AHEAD_S}
    n_pod = n_growth = n_origin = 0
    for _, part in rows.groupby("container"):
        t = part["t_s"].to_numpy(dtype=float)
        mib = np.maximum(part["mem_util"].to_numpy(dtype=float), 0) * POD_MIB
        last = int(np.searchsorted(t, t[-1] - AHEAD_S["60"]))
        n_pod += last > WINDOW
        for i in range(WINDOW, last, stride):
            x, y = t[i - WINDOW : i], mib[i - WINDOW : i]
            found = forecast(x, y, limit_mib=POD_MIB, end=x[-1] + AHEAD_S["60"])
            slope, level = np.polyfit(x[-30:] - x[-1], y[-30:], 1)
            n_origin += 1
            n_growth += found.law != "as now"
            for name, ahead_s in AHEAD_S.items():
                truth = mib[np.searchsorted(t, x[-1] + ahead_s)]
                mid, low, high = at(found, ahead_s)
                ours[name].append(abs(mid - truth))
                now[name].append(abs(y[-1] - truth))
                line[name].append(abs(level + slope * ahead_s - truth))
                inside[name].append(low - 0.5 <= truth <= high + 0.5)
    print(f"\nAlibaba: {n_pod} pods, {n_origin} origins, growth seen in {n_growth}; mean absolute error in")
    print("thousandths of the pod's memory")
    print("minutes  forecast  as now  30-point line  ratio to as now  in the 90 % band")
    ratio = {}
    for name in AHEAD_S:
        mean = [1000 * statistics.fmean(errors[name]) / POD_MIB for errors in (ours, now, line)]
        ratio[name] = round(mean[0] / mean[1], 3)
        print(
            f"{name:>7} {mean[0]:9.2f} {mean[1]:7.2f} {mean[2]:14.2f} {ratio[name]:16.3f} "
            f"{statistics.fmean(inside[name]):17.2f}"
        )
    coverage = {name: round(statistics.fmean(inside[name]), 3) for name in AHEAD_S}
    return {"over_persistence": ratio, "coverage90": coverage, "pods": n_pod, "origins": n_origin}


def shapes(every: int, n_seed: int) -> dict[str, object]:
    """Return alarms on harmless courses, and leads on those that fill a node, of one course in `every`."""
    quiet, slow, quick = harmless()[::every], filling()[::every], fast()[::every]
    with_alarm: dict[str, int] = {}
    returns = 0
    for shape in quiet:
        runs = [played(shape, seed).alarms_s for seed in range(n_seed)]
        if any(runs):
            with_alarm[shape.name] = sum(map(len, runs))
    print(f"\nharmless courses with an alarm in one of {n_seed} runs: {with_alarm or 'none'}")
    print("course                          full at, min   alarm at, min   lead, min (least, median, most)")
    leads: dict[str, list[float]] = {}
    missed = 0
    for shape in (*slow, *quick):
        runs = [played(shape, seed) for seed in range(n_seed)]
        leads[shape.name] = [run.lead_min for run in runs if run.lead_min is not None]
        missed += n_seed - len(leads[shape.name])
        returns += sum(len(run.alarms_s) > 1 for run in runs)
        _print_leads(shape, runs[0].full_s or 0, leads[shape.name])
    far = [lead for shape in slow for lead in leads[shape.name]]
    near = [60 * lead for shape in quick for lead in leads[shape.name]]
    return {
        "false_alarms": len(with_alarm),
        "n_shape": len(quiet),
        "lead_min_minutes": round(min(far), 1),
        "lead_median_minutes": round(statistics.median(far), 1),
        "lead_max_minutes": round(max(far), 1),
        "lead_fast_min_s": round(min(near)),
        "lead_fast_max_s": round(max(near)),
        "leaks": n_seed * len(leads),
        "leaks_missed": missed,
        "leaks_with_alarm_again": returns,
    }


def _print_leads(shape: Shape, full_s: int, leads: Sequence[float]) -> None:
    if not leads:
        print(f"{shape.name:30} {full_s / 60:13.1f}   no alarm")
        return
    low, mid, high = min(leads), statistics.median(leads), max(leads)
    print(f"{shape.name:30} {full_s / 60:13.1f} {full_s / 60 - mid:15.1f} {low:12.2f} {mid:8.2f} {high:8.2f}")


def runs_of_data(shared: Path) -> Iterator[tuple[str, Floats, Floats]]:
    """Return source, seconds and MiB of each measured run and generated course."""
    pods_ = pd.read_parquet(shared / "data" / "alibaba" / "genai_pod_mem_util.parquet")
    for _, part in pods_.groupby("container"):
        mib = np.maximum(part["mem_util"].to_numpy(dtype=float), 0) * POD_MIB
        yield "pods", part["t_s"].to_numpy(dtype=float), mib
    rows = pd.read_parquet(shared / "data" / "sockshop_mem" / "container_metrics.parquet")
    for _, t, mib in phases(rows, "normal"):
        yield "containers", t, mib
    for shape in (*harmless(), *filling()):
        mib = np.array(shape.series(shape.job_s))
        yield "courses", np.arange(1.0, len(mib) + 1), mib


def advised_mib(t: Floats, mib: Floats, end_s: float) -> float | None:
    """Return what a node should have by these reports; None where they are too few to say."""
    reports = [Report(float(at), int(RATE * at), float(m)) for at, m in zip(t, mib, strict=True)]
    most = most_by_end(reports, int(RATE * end_s))
    return None if most is None else MARGIN * most


def allocation(runs: Iterable[tuple[str, Floats, Floats]]) -> dict[str, object]:
    """Return the shares of runs with too little, and of memory beyond the peak of the others."""
    over: dict[str, list[float]] = {}
    n_under: dict[str, int] = {}
    n_none = 0
    for source, t, mib in runs:
        n = int(np.searchsorted(t, t[0] + ADVISED_AT * (t[-1] - t[0])))
        step = -(-n // 600)  # as many as a job keeps
        advised = advised_mib(t[:n:step], mib[:n:step], float(t[-1])) if n and mib.max() > 0 else None
        if advised is None:
            n_none += 1
            continue
        ratio = advised / float(mib.max()) - 1
        n_under[source] = n_under.get(source, 0) + (ratio < 0)
        over.setdefault(source, [])
        if ratio >= 0:
            over[source].append(ratio)
    print("\nadvised after a quarter   runs   under-allocated   (advised - peak) / peak of the others")
    for source, ratios in over.items():
        n = n_under[source] + len(ratios)
        print(f"{source:25} {n:5} {n_under[source] / n:16.3f} {statistics.fmean(ratios):20.2f}")
    ratios = [ratio for each in over.values() for ratio in each]
    n = sum(n_under.values()) + len(ratios)
    return {
        "under_allocation_share": round(sum(n_under.values()) / n, 4),
        "over_allocation_share": round(statistics.fmean(ratios), 3),
        "over_allocation_median": round(statistics.median(ratios), 3),
        "runs_advised": n,
        "runs_too_short": n_none,
        "under_allocated": {
            source: f"{n_under[source]} of {n_under[source] + len(over[source])}" for source in over
        },
    }


def cost_ms() -> tuple[float, float]:
    """Return the median and the least cost of a forecast from 600 reports, half of them with growth."""
    rng, x = np.random.default_rng(0), np.arange(1.0, 601.0)
    taken = []
    for i in range(200):
        y = 300 + 0.5 * x * (i % 2) + rng.normal(0, 3, len(x))
        start = time.perf_counter()
        forecast(x, y, limit_mib=LIMIT_MIB, end=6000.0, origin=0.0)
        taken.append(1000 * (time.perf_counter() - start))
    return statistics.median(taken), min(taken)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--stride", type=int, default=44, help="reports between the origins of a pod")
    parser.add_argument("--every", type=int, default=4, help="courses of memory of which one is played")
    parser.add_argument("--seeds", type=int, default=1, help="of the noise of each course")
    options = parsed(parser, stride=11, every=1, seeds=3)
    result: dict[str, object] = {"benchmark": "forecast"}
    result |= embedding(options.shared)
    result |= hogs(options.shared)
    result |= pods(options.shared, options.stride)
    result |= shapes(options.every, options.seeds)
    result |= allocation(runs_of_data(options.shared))
    median, least = cost_ms()
    print(f"\none forecast from 600 reports: median {median:.2f} ms, least {least:.2f} ms")
    result |= {"forecast_ms_600": round(median, 2), "forecast_ms_600_least": round(least, 2)}
    print_figures("forecast", result)


if __name__ == "__main__":
    main()
