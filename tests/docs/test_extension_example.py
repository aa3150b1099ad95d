"""The example package of the documentation, installed: each of its extensions does its work."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dlrover_nb.cli import GRAMMAR as SHELL
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.magics.arguments import GRAMMAR

pytestmark = pytest.mark.more

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "dlrover-nb-example"
USE = """
import json

import yaml

import dlrover_nb
from dlrover_nb.widgets.charts import all_charts

cluster = dlrover_nb.connect("small-sim", speed=600)
job = cluster.submit("name: extended", epochs=2000, policy="one-more-worker")
job.wait(until="proposal", timeout_s=600)
snapshot, series = job.snapshot(), job.series()
chart = all_charts()["nodes"]
print(json.dumps({
    "why": snapshot.open_proposal.why,
    "workers": snapshot.open_proposal.candidate.plan.worker.count,
    "chart": chart.static(snapshot, series).svg,
    "export": yaml.safe_load(job.export("plan-summary").text),
}))
cluster.shutdown(force=True)
"""
STRAGGLE = """
import json
import time

import numpy as np

from dlrover_nb.core.backends.simulated.assumptions import SETTINGS
from dlrover_nb.core.backends.simulated.cluster import SimulatedCluster
from dlrover_nb.core.jobfile import parse_job
from dlrover_nb.core.simulator import Faults, SimulatedJob, SimulatedWorld, TermsTruth, WorldSettings
from dlrover_nb.core.structs.plan.capacity import NodeShape

spec = parse_job(
    "{name: slowed, sync: bsp, mode: auto, policy: fixed-plan, stragglers: SOLUTION, "
    "straggler_rule: behind-the-fastest, plan: {worker: {count: 4, cpu: 1, memory_mib: 2048}}}"
)
truth = TermsTruth(grad_s=2e-5, update_s=1e-4, lookup_s=2e-6, constant_s=1e-3)
faults = Faults(failures_per_day=0, slow_per_day=12.0, slow_factor=(0.3, 0.4), slow_s=1e6)
world = SimulatedWorld(
    [NodeShape(16.0, 65_536, 4)],
    rng=np.random.default_rng(2),
    settings=WorldSettings(report_s=15.0, faults=faults),
)
cluster = SimulatedCluster(world, SETTINGS, lambda _: None, speed=6000.0)
handle = cluster.add(SimulatedJob(spec, truth, 1 << 40))
end_s, rules, done = time.monotonic() + 600, set(), []
while not (done and rules):
    now = handle.snapshot()
    rules |= {each.rule for each in now.stragglers}
    done = [each for each in now.mitigations if each.status == "applied"]
    assert time.monotonic() < end_s, now
    time.sleep(0.05)
batches = dict(done[0].action.adjust.sizes) if done[0].action.adjust else {}
print(json.dumps({"why": done[0].why, "words": done[0].words, "batches": batches, "rules": sorted(rules)}))
cluster.shutdown(force=True)
"""
BRAIN = """
import json

from support.plans.offers_made import offer

from dlrover_nb.core.brain.cluster_plan import BrainSettings, plan_cluster
from dlrover_nb.core.brain.queue_order import QueueState, first_of
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.queued_jobs import WaitingOffer
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

big, room = (12, 1, 1.0, 1.0), Capacity((NodeShape(16.0, 65536),))
offers = [offer(name, (2, 1, 1.0, 1.0), big, n_left=n) for name, n in (("long", 10**9), ("short", 10**6))]
by_weight = plan_cluster(offers, room, BrainSettings(weight="samples-left"))
by_method = plan_cluster(offers, room, BrainSettings(method="equal-cores"))
large, small = (
    WaitingOffer(name, "ada", ResourcePlan(RolePlan(n, 1.0, 512), RolePlan(1, 1.0, 512)), 90.0 - n, 1000)
    for name, n in (("large", 12), ("small", 2))
)
print(json.dumps({
    "grown": [job for job, share in by_weight.shares.items() if share.plan.worker.count == 12],
    "cores": [share.quota.cpu for share in by_method.shares.values()],
    "first": first_of([large, small], BrainSettings(order="smallest-first").order, QueueState(room, 0.0, {})).job,
}))
"""
TRAIN = """
import json
from pathlib import Path

import numpy as np

import dlrover_nb

rng = np.random.default_rng(0)
users, clicks = rng.integers(0, 20, 4000), rng.random(4000)
rows = ({"user": f"u{u}", "label": int(c < u / 20)} for u, c in zip(users.tolist(), clicks.tolist()))
Path("clicks.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
cluster = dlrover_nb.connect("local")
job = cluster.submit({
    "name": "lines",
    "data": {"format": "json-lines", "path": "clicks.jsonl"},
    "model": {"optimizer": "momentum", "embedding_dim": 4, "hidden": [8]},
    "batch_size": 100,
    "epochs": 3,
})
end = job.wait(timeout_s=600)
print(json.dumps({"phase": end.phase, "auc": job.snapshot().evaluation.auc}))
cluster.shutdown(force=True)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Install the example package into a folder, as pip does."""
    folder = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source") / "package"
    subprocess.run(["cp", "-r", str(EXAMPLE), str(source)], check=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*pip, "--target", str(folder), str(source)], check=True)
    return folder


def run(code, installed, folder):
    """Run code where the package is installed; return what its last line says."""
    own = (str(installed), str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH"))
    path = os.pathsep.join(filter(None, own))
    places = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("STATE", "DATA", "CONFIG")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | places | {"PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_policy_chart_exporter_and_cluster_of_the_example_package_work(installed, tmp_path):
    found = run(USE, installed, tmp_path)
    assert found["why"].startswith("One more worker is predicted to bring ")
    assert found["workers"] == 2
    assert ">workers</text>" in found["chart"]
    assert found["export"]["kind"] == "PlanSummary"
    assert found["export"]["spec"]["worker"]["count"] == 1


def test_rule_and_solution_of_the_example_package_give_a_slow_worker_half_a_batch(installed, tmp_path):
    found = run(STRAGGLE.replace("SOLUTION", "half-batches"), installed, tmp_path)
    assert "would do half as much" in found["why"]
    assert sum(found["batches"].values()) == 4 * 512
    assert min(found["batches"].values()) == 256
    assert all("at least λ times that of the fastest" in rule for rule in found["rules"])


def test_the_action_of_the_example_package_is_done_and_recorded(installed, tmp_path):
    found = run(STRAGGLE.replace("SOLUTION", "note-lasting"), installed, tmp_path)
    name, _, node = found["words"].partition(" for ")
    assert (name, found["why"]) == ("note-node", f"{node} is slow for long")
    assert f"slowed {node}\n" in (tmp_path / "slow-nodes.txt").read_text()


def test_order_weight_and_method_of_the_example_package_decide_in_a_brain(installed, tmp_path):
    found = run(BRAIN, installed, tmp_path)
    assert found == {"grown": ["long"], "cores": [8.0, 8.0], "first": "small"}


def test_a_job_of_processes_reads_and_learns_as_the_example_package_says(installed):
    with tempfile.TemporaryDirectory(prefix="dl") as folder:  # short: unix sockets live below it
        found = run(TRAIN, installed, Path(folder))
    assert found["phase"] == "succeeded"
    assert found["auc"] > 0.7


def test_the_command_line_knows_the_exporter_of_a_package(installed, monkeypatch):
    monkeypatch.syspath_prepend(str(installed))
    GRAMMAR.parse_line("export extended --kind plan-summary")
    with pytest.raises(InvalidValueError, match="unknown kind of export 'plan-sumary'"):
        GRAMMAR.parse_line("export extended --kind plan-sumary")
    GRAMMAR.parse_line("submit extended --format json-lines --optimizer momentum")
    GRAMMAR.parse_line("stragglers extended --solution half-batches")
    SHELL.parse_line("server brain --order smallest-first --weight samples-left --method equal-cores")
    with pytest.raises(InvalidValueError, match="unknown order 'smallest'"):
        SHELL.parse_line("server brain --order smallest")
    with pytest.raises(InvalidValueError, match="unknown optimizer 'momentun'"):
        GRAMMAR.parse_line("submit extended --optimizer momentun")
