"""The quota of a control group, in folders that look like the kernel's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.runtime.process.limits import quota_us
from dlrover_nb.testing.faults.cpu_group import cores_of, lowered, own_group, renewed, set_back, write

if TYPE_CHECKING:
    from pathlib import Path


def set_quota(group: Path, cpu: float, *, v2: bool) -> None:
    quota, period = quota_us(cpu)
    if v2:
        (group / "cpu.max").write_text(f"{quota} {period}\n")
    else:
        (group / "cpu.cfs_period_us").write_text(f"{period}\n")
        (group / "cpu.cfs_quota_us").write_text(f"{quota}\n")


@given(cpu=st.floats(0.05, 64), share=st.floats(0.05, 0.95), v2=st.booleans())
def test_a_share_of_a_quota_is_set_and_the_quota_is_set_back(tmp_path_factory, cpu, share, v2):
    group = tmp_path_factory.mktemp("group")
    set_quota(group, cpu, v2=v2)
    before = cores_of(group)
    quota = lowered(group, share)
    assert cores_of(group) == before  # not before it is on record
    write(quota)
    assert cores_of(group) == pytest.approx(before * share, rel=0.02)
    assert renewed(quota, share) == quota
    set_back(quota)
    assert cores_of(group) == before
    set_back(quota)  # once more changes nothing
    assert cores_of(group) == before


@pytest.mark.parametrize("v2", [False, True])
def test_a_node_that_is_resized_meanwhile_gets_a_share_of_its_new_quota_and_keeps_that(tmp_path, v2):
    set_quota(tmp_path, 0.5, v2=v2)
    quota = lowered(tmp_path, 0.5)
    write(quota)
    set_quota(tmp_path, 2.0, v2=v2)
    set_back(quota)
    assert cores_of(tmp_path) == pytest.approx(2.0)
    newer = renewed(quota, 0.5)
    write(newer)
    assert cores_of(tmp_path) == pytest.approx(1.0)
    set_back(newer)
    assert cores_of(tmp_path) == pytest.approx(2.0)


def test_a_quota_half_written_by_a_killed_process_is_set_back(tmp_path):
    set_quota(tmp_path, 0.06, v2=False)
    before = cores_of(tmp_path)
    quota = lowered(tmp_path, 0.1)
    name, period = quota.ours[0]
    (tmp_path / name).write_text(period)
    assert cores_of(tmp_path) != before
    set_back(quota)
    assert cores_of(tmp_path) == before


def test_a_group_that_has_gone_with_its_node_is_no_error(tmp_path):
    set_quota(tmp_path, 0.5, v2=True)
    quota = lowered(tmp_path, 0.5)
    (tmp_path / "cpu.max").unlink()
    set_back(quota)


def test_a_process_without_a_group_of_its_own_has_none():
    assert own_group(os.getpid(), "job-worker-0") is None
