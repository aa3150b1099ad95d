"""A call of the command line loads only what its verb needs: imports are most of the time it takes."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.more

HEAVY = {"IPython", "alembic", "bokeh", "fsspec", "kubernetes", "pandas", "panel", "pyarrow", "pymoo", "ray", "scipy",
         "sqlalchemy", "torch", "zmq"}  # fmt: skip
RUN = """
import sys
from dlrover_nb import cli
cli.main(sys.argv[1:])
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
MASTER = (
    "import dlrover_nb.core.backends.%s.master, dlrover_nb.core.driver.own.own_job, sys; print(*sys.modules)"
)
CLIENT = "import dlrover_nb.cli, dlrover_nb.magics.commands, dlrover_nb.core.backends.%s.cluster, sys; print(*sys.modules)"


def loaded_by(code: str, *words: str, home: Path) -> set[str]:
    """Return the heavy packages that a new process has loaded; its home is empty, so that no job is there."""
    folders = {f"XDG_{what}_HOME": str(home / what.lower()) for what in ("STATE", "DATA", "CONFIG")}
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=os.environ | folders,
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()} & HEAVY


@pytest.mark.parametrize(
    "words", [("--help",), ("submit", "--help"), ("status",), ("wait", "quick-start")], ids=" ".join
)
def test_without_a_cluster_nothing_heavy_is_loaded(words: tuple[str, ...], tmp_path: Path) -> None:
    assert loaded_by(RUN, *words, home=tmp_path) == set()


WITH_RAY = pytest.mark.skipif(find_spec("ray") is None, reason="the extra ray is not installed")


@pytest.mark.parametrize(
    ("kind", "needs"),
    [pytest.param("ray", {"ray"}, marks=WITH_RAY), ("local", set())],
    ids=["ray", "local"],
)
def test_a_client_of_running_jobs_loads_neither_data_nor_history_nor_models(
    kind: str, needs: set[str], tmp_path: Path
) -> None:
    assert loaded_by(CLIENT % kind, home=tmp_path) == needs


@pytest.mark.parametrize(
    ("kind", "needs"),
    [pytest.param("ray", {"ray"}, marks=WITH_RAY), ("local", set())],
    ids=["ray", "local"],
)
def test_a_master_starts_without_what_it_needs_for_decisions_alone(
    kind: str, needs: set[str], tmp_path: Path
) -> None:
    """Nodes wait for their master; scipy is imported when a model is fitted."""
    assert loaded_by(MASTER % kind, home=tmp_path) == {"sqlalchemy", "zmq"} | needs


def test_a_master_loads_no_database_but_sqlite() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MASTER % "local"], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "sqlalchemy.dialects.sqlite" in loaded
    assert not loaded & {"sqlalchemy.dialects.postgresql", "psycopg"}
