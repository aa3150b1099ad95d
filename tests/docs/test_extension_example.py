"""The example package of the documentation, installed: each of its extensions does its work."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

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
    path = os.pathsep.join(filter(None, (str(installed), str(ROOT), os.environ.get("PYTHONPATH"))))
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
    with pytest.raises(InvalidValueError, match="unknown optimizer 'momentun'"):
        GRAMMAR.parse_line("submit extended --optimizer momentun")
