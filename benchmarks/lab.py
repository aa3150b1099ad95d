"""What a lab of a month costs: a thousand jobs in thirty days under six policies, each by itself.

`cpu_s_NAME` is the CPU time of one run under a policy, all jobs together; the target is 60 s.
`questions_NAME` is how often the policy was asked. `is_same` says whether the same seed gave the same result
twice, of the policy that costs most to ask. `ratio_NAME` is the mean completion time over that of the plans
as requested: a figure of these drawn jobs, and no claim about others.

With `--trace` the jobs arrive and last as in a trace; with `--tables` their truth is measured.

    python benchmarks/lab.py [--jobs 1000 --days 30 --trace philly.csv.xz --tables ps_worker_speed.csv]
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace

from lengths import parsed

from dlrover_nb.core.lab import MEASURES, Contender, LabFile, LabResult, Workload, run_lab

POLICIES = ("fixed-plan", "optimus", "elastic-scheduling", "throughput-model", "nearchus", "qore")


def one(lab: LabFile, policy: str) -> tuple[LabResult, float]:
    """Run one policy alone; return its result and its CPU time."""
    from_s = time.process_time()
    result = run_lab(replace(lab, contenders=(Contender(policy),)))
    return result, time.process_time() - from_s


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--days", type=float, default=3.0)
    parser.add_argument("--trace", default="")
    parser.add_argument("--tables", default="")
    parser.add_argument("--deadlines", type=float, default=0.3, help="share of jobs with a deadline")
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    parser.add_argument("--seed", type=int, default=0)
    options = parsed(parser, jobs=1000, days=30.0)
    workload = Workload(
        jobs=options.jobs,
        days=options.days,
        trace=options.trace,
        tables=options.tables,
        deadlines=options.deadlines,
    )
    lab = LabFile(name="month", workload=workload, seeds=(options.seed,))
    line: dict[str, object] = {"benchmark": "lab", "workload": workload.words, "days": options.days}
    results: dict[str, LabResult] = {}
    for policy in options.policies:
        results[policy], cpu_s = one(lab, policy)
        line[f"cpu_s_{policy}"] = round(cpu_s, 1)
        show(policy, results[policy], cpu_s)
    line["n_job"] = results[options.policies[0]].n_job
    first = results[options.policies[0]].runs[0].column("jct_s").mean()
    for policy, result in results.items():
        line[f"questions_{policy}"] = int(result.scores[0].n_question)
        line[f"ratio_{policy}"] = round(result.runs[0].column("jct_s").mean() / first, 4)
    dearest = max(results, key=lambda policy: float(str(line[f"cpu_s_{policy}"])))
    line["is_same"] = one(lab, dearest)[0] == results[dearest]
    print(json.dumps(line))


def show(policy: str, result: LabResult, cpu_s: float) -> None:
    figures = result.scores[0].figures
    words = "  ".join(f"{name} {figures[name].median:.3g}" for name in MEASURES)
    print(
        f"{policy:18} {cpu_s:6.1f} s CPU, asked {result.scores[0].n_question:.0f} times: {words}", flush=True
    )


if __name__ == "__main__":
    main()
