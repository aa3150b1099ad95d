import pytest

from dlrover_nb.core.runtime.process import limits
from dlrover_nb.core.runtime.process.container import ContainerLimits, charged_bytes, cpu_limit, memory_limit

MIB = 1 << 20
STAT = "cache 9\nrss 8\nactive_file 1\ninactive_file 1\ntotal_rss 8\ntotal_active_file {a}\ntotal_inactive_file {i}"


@pytest.fixture
def in_pod(monkeypatch):
    """Let this process be where /proc says that a container is: below a path that it cannot see."""
    own = dict.fromkeys(("cpu", "memory", ""), "/kubepods/pod1/c1")
    monkeypatch.setattr(limits, "_own_groups", lambda: own)


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def v1(root, quota=50_000, limit=512 * MIB, usage=300 * MIB, active=40 * MIB, inactive=60 * MIB):
    write(root / "cpu", cpu__cfs_quota_us=quota, cpu__cfs_period_us=100_000)
    write(root / "memory", memory__limit_in_bytes=limit, memory__usage_in_bytes=usage)
    write(root / "memory", memory__stat=STAT.format(a=active, i=inactive))
    return root


def v2(root, quota="50000", limit=512 * MIB, usage=300 * MIB, active=40 * MIB, inactive=60 * MIB):
    write(root, cgroup__controllers="cpu memory", cpu__max=f"{quota} 100000", memory__max=limit)
    write(root, memory__current=usage, memory__stat=f"anon 1\nactive_file {active}\ninactive_file {inactive}")
    return root


@pytest.mark.parametrize("made", [v1, v2])
def test_the_limits_that_the_kubelet_set_are_those_of_the_plan(tmp_path, in_pod, made):
    root = made(tmp_path)
    assert (cpu_limit(root), memory_limit(root)) == (0.5, 512 * MIB)
    assert ContainerLimits(root).apply(0.5, 512) == (True, True)


@pytest.mark.parametrize("made", [v1, v2])
@pytest.mark.parametrize(
    ("cpu", "memory_mib", "enforced"), [(0.25, 512, (False, True)), (0.5, 700, (True, False))]
)
def test_limits_that_are_others_than_the_plan_are_not_taken_for_it(
    tmp_path, in_pod, made, cpu, memory_mib, enforced
):
    assert ContainerLimits(made(tmp_path)).apply(cpu, memory_mib) == enforced


def test_a_share_that_was_rounded_to_thousandths_is_the_plans(tmp_path, in_pod):
    assert ContainerLimits(v1(tmp_path, quota=1_300)).apply(0.0128, 512).cpu


@pytest.mark.parametrize(("made", "quota", "limit"), [(v1, -1, 1 << 63), (v2, "max", "max")])
def test_without_limits_a_plan_is_advisory(tmp_path, in_pod, made, quota, limit):
    root = made(tmp_path, quota=quota, limit=limit)
    assert cpu_limit(root) is None
    assert ContainerLimits(root).apply(0.5, 512) == (False, False)


def test_without_control_groups_a_plan_is_advisory(tmp_path):
    assert ContainerLimits(tmp_path / "none").apply(0.5, 512) == (False, False)
    assert charged_bytes(tmp_path / "none") is None


@pytest.mark.parametrize("made", [v1, v2])
def test_pages_of_files_do_not_count_for_the_kernel_takes_them_back(tmp_path, in_pod, made):
    assert charged_bytes(made(tmp_path)) == 200 * MIB


def test_nothing_is_changed(tmp_path, in_pod):
    root = v1(tmp_path)
    before = {path: path.read_text() for path in root.rglob("*") if path.is_file()}
    limit = ContainerLimits(root)
    limit.apply(0.5, 512)
    limit.release()
    assert {path: path.read_text() for path in root.rglob("*") if path.is_file()} == before
