"""The example package of the documentation, installed: each of its extensions does its work."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.magics.arguments import GRAMMAR

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


def test_each_extension_of_the_example_package_works(installed):
    path = os.pathsep.join(filter(None, (str(installed), str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-c", USE],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["why"].startswith("One more worker is predicted to bring ")
    assert found["workers"] == 2
    assert ">workers</text>" in found["chart"]
    assert found["export"]["kind"] == "PlanSummary"
    assert found["export"]["spec"]["worker"]["count"] == 1


def test_the_command_line_knows_the_exporter_of_a_package(installed, monkeypatch):
    monkeypatch.syspath_prepend(str(installed))
    GRAMMAR.parse_line("export extended --kind plan-summary")
    with pytest.raises(InvalidValueError, match="unknown kind of export 'plan-sumary'"):
        GRAMMAR.parse_line("export extended --kind plan-sumary")
