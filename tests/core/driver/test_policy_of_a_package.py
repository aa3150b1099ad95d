"""A job under the policy of another installed package."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from support.driver.driver_world import plan, succeeded

from dlrover_nb.core.driver.policies import find_policy
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.spec_choices import Mode, Sync

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.driver.driver_world import DriverWorld

POLICY = """
from dlrover_nb.core.planner import Advice
from dlrover_nb.core.structs.decisions.decisions import ProposalKind

def even_out(analysis, settings, context):
    if len(context.worker_samples_per_s) < 2:
        return None
    batches = tuple((worker, 5) for worker in sorted(context.worker_samples_per_s)[:1])
    return Advice(ProposalKind.IMPROVE, analysis.current, "one worker is to do less", batches)
"""


@pytest.fixture
def even_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Install a package that adds a policy; return the policy's name."""
    folder = tmp_path / "site"
    metadata = folder / "even_out_package-1.0.dist-info"
    metadata.mkdir(parents=True)
    (folder / "even_out_package.py").write_text(POLICY)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: even-out-package\nVersion: 1.0\n")
    points = "[dlrover_nb.policies]\neven-out = even_out_package:even_out\n"
    (metadata / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "even_out_package", raising=False)
    return "even-out"


def test_an_unknown_policy_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidValueError, match="got 'optimum'; did you mean optimus"):
        find_policy("optimum")


def test_a_policy_gives_a_worker_a_smaller_batch_and_every_sample_is_trained(
    play: Callable[..., DriverWorld], even_out: str
) -> None:
    job = play(plan=plan(2, 1), sync=Sync.BSP, n_epoch=20, mode=Mode.AUTO, policy=even_out)
    end = succeeded(job)
    assert job.story_has("auto sets batch sizes: worker-0 5: one worker is to do less")
    assert sum("sets batch sizes" in line for line in end.story) == 1
