"""Benchmarks of the exchange start real PS as a master does: one whose first group is of epoch 0 serves nobody."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
PROGRAM = """
import json
from ps_saturation import Load, measure

if __name__ == "__main__":
    print(json.dumps(measure(Load("slab", 1, seconds=0.2))))
"""


@pytest.mark.more
def test_a_client_of_a_benchmark_exchanges_with_a_real_ps(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(FOLDER)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1])["exchanges_per_s"] > 0
