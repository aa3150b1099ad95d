import os
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def test_the_benchmark_of_this_name_does_not_hide_the_standard_librarys_select():
    code = (
        "import select, subprocess; print(hasattr(select, 'select'), getattr(select, '__file__', 'built in'))"
    )
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS)}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.startswith("True")
    assert str(BENCHMARKS) not in found.stdout
