"""Bad input, verb by verb: exactly one line with the way out, no traceback, and nothing has changed."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from IPython.core.error import UsageError
from support.cases import for_each
from support.waiting import LIMIT_S

from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.magics.commands import Commands
from dlrover_nb.magics.shell import loaded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell
    from support.jobs.cluster_double import MemoryCluster

LOST = "the cluster at 10.0.0.1:6379 does not answer; `connect ray` joins or starts one"


@pytest.fixture
def typed(shell: InteractiveShell, memory: MemoryCluster) -> InteractiveShell:
    shell.run_line_magic("dlrover", "connect ray")
    shell.run_line_magic("dlrover", "submit ctr")
    memory.links["ctr"].propose(1)
    return shell


@pytest.mark.more
@for_each(
    ("line", "message"),
    [
        ("zzz", "unknown verb 'zzz'; choose from connect, submit"),
        ("statsu", "unknown verb 'statsu'; did you mean show?; see %dlrover help"),
        ("help undoo", "unknown verb 'undoo'; did you mean undo?"),
        *((f"{verb} ctrr", "no job 'ctrr' here; did you mean ctr?")
          for verb in ("status", "watch", "plans", "why", "undo", "logs", "attach", "dash", "export", "wait", "stop", "shards")),
        ("whatif ctrr --workers 2", "did you mean ctr?"),
        ("pin ctrr --ps 2", "did you mean ctr?"),
        ("mode ctrr auto", "did you mean ctr?"),
        ("scale ctrr --ps 2", "did you mean ctr?"),
        ("report ctrr -o r.html", "did you mean ctr?"),
        ("accept ctrr p1", "did you mean ctr?"),
        ("whatif", "nothing to change; give at least one of --workers, --ps"),
        ("whatif --workers 0", "workers must be >= 1, got 0; a job needs at least 1"),
        ("whatif --workers two", "--workers: must be a whole number, got 'two'"),
        ("whatif --worker 2", "unknown flag '--worker'; did you mean --workers?"),
        ("logs -n ten", "-n/--lines: must be a whole number, got 'ten'"),
        ("mode atuo", "unknown mode 'atuo'; did you mean auto?"),
        ("wait --for ever", "unknown thing to wait for 'ever'; choose from end, proposal"),
        ("wait --timeout", "--timeout: expected one argument"),
        ("import", "the following arguments are required: FILE"),
        ("dash a b", "unexpected argument: 'b'"),
        ("history a b", "unexpected argument: 'b'"),
        ("wait --timeout nan", "timeout in seconds must be >= 0, got nan; leave it out"),
        ("wait --timeout -1", "timeout in seconds must be >= 0, got -1"),
        (f"scale --workers {10**32}", "node count must be <= 100,000, got 1000000"),
        (f"scale --workers {10**400}", "node count must be <= 100,000, got 1000000"),
        ("scale --worker-cpu 1e308", "cpu per node must be <= 10,000, got 1e+308"),
        ("whatif --ps-memory 99999999999", "memory_mib per node must be <= 1,073,741,824, got 99999999999"),
        ("submit --file a\0b", "remove the character that is not text"),
        ("score --owner \ud800", "remove the character that is not text"),
        ("submit --file /dev/zero", "expected at most 16 MiB of YAML text, got more"),
        ("export -o /dev/null --force", "/dev/null is a device, expected an ordinary file; name another file"),
        (f"export -o {'a' * 300}", "File name too long; name another file"),
        ('undo --why "never closed', "unclosed quote in: undo --why"),
        ("connect kubernetes", "there is no kubeconfig at /nowhere/config; set KUBECONFIG to the path of yours"),
        ("report -o nowhere/r.html", "no folder"),
        ("export -o .", "is a folder, expected a file; add a file name"),
        ("export -o nowhere/job.yaml", "no folder"),
        ("submit", "the job has no name; write submit NAME, or `name:` in its YAML"),
        ("submit X", "job name must be 1-52 lower-case letters"),
        ("submit x --ps 0", "plan.ps: node count must be >= 1, got 0; a job needs at least 1 worker"),
        ("submit x --workers 90", "the plan needs 45.2"),
        ("submit --file nowhere.yaml", "no job file"),
        ("submit --file .", "cannot read job file"),
        ("submit x --data rows.dat", "data.format is missing, and"),
        ("submit x --set data=3 --label y", "data must be a group of format, path"),
        ("submit x --set modell.seed=1", "unknown key 'modell'; did you mean model?"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_changes_nothing(
    typed: InteractiveShell, memory: MemoryCluster, line: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    magics = loaded(typed)
    assert magics is not None
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    if line.startswith("connect"):
        magics.commands._connector = connect
    link, before = memory.links["ctr"], memory.links["ctr"].state
    cluster = magics.commands.session.cluster
    with pytest.raises(UsageError) as caught:
        typed.run_line_magic("dlrover", line)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert link.state == before
    assert (link.decisions, link.stopped, link.choices) == ([], [], [])
    assert set(memory.links) == {"ctr"}
    assert magics.commands.session.cluster is cluster


@for_each(
    "line",
    ["jobs", "status ctr", "plans ctr", "accept ctr p1", "scale ctr --ps 2", "mode ctr auto", "attach", "submit new",
     "export ctr", "logs ctr", "why ctr", "stop ctr", "dash"],
)  # fmt: skip
def test_a_lost_cluster_is_one_line(
    typed: InteractiveShell, memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    def lost(*_: object, **__: object) -> Any:
        raise BackendError(LOST)

    for name in ("jobs", "live_jobs", "job", "submit", "capacity"):
        monkeypatch.setattr(memory, name, lost, raising=False)
    before = memory.links["ctr"].state
    with pytest.raises(UsageError) as caught:
        typed.run_line_magic("dlrover", line)
    assert str(caught.value) == LOST
    assert memory.links["ctr"].state == before
    assert memory.links["ctr"].decisions == []


def denied(*_: object, **__: object) -> Any:
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize("line", ["submit --file job.yaml", "import job.yaml", "import --check job.yaml"])
def test_a_file_that_may_not_be_read_is_one_line(
    typed: InteractiveShell, memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch, line: str, error_words
) -> None:
    Path("job.yaml").write_text("name: x\n")
    monkeypatch.setattr(Path, "open", denied)
    with error_words(UsageError) as caught:
        typed.run_line_magic("dlrover", line)
    assert "no permission to read" in str(caught.value)
    assert set(memory.links) == {"ctr"}


@pytest.mark.parametrize("line", ["export ctr -o sub/a.yaml", "report ctr -o sub/r.html"])
def test_a_folder_that_may_not_be_written_is_one_line(
    typed: InteractiveShell, monkeypatch: pytest.MonkeyPatch, line: str, error_words
) -> None:
    Path("sub").mkdir()
    monkeypatch.setattr("tempfile.mkstemp", denied)
    with error_words(UsageError) as caught:
        typed.run_line_magic("dlrover", line)
    assert "\n" not in str(caught.value)
    assert list(Path("sub").iterdir()) == []


@pytest.fixture
def simulated(shell: InteractiveShell) -> Iterator[InteractiveShell]:
    """A shell with one job that trains on two simulated machines, by hand."""
    magics = loaded(shell)
    assert magics is not None
    magics.commands = Commands(connect)
    shell.run_line_magic("dlrover", "connect sim --machines 2 --speed 2000")
    cell = "name: ctr\nepochs: 100000\nmode: manual\nbounds: {quota_cpu: 8}\npins: {ps: 1}\n"
    job = shell.run_cell_magic("dlrover", "submit", cell)
    end_s = time.monotonic() + LIMIT_S
    while job.snapshot().phase is not JobPhase.TRAINING:
        assert time.monotonic() < end_s
        time.sleep(0.02)
    yield shell
    shell.run_line_magic("dlrover", "shutdown --force")


@pytest.mark.more
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("scale --ps 2", ("ps = 1",)),
        ("scale --workers 4 --worker-cpu 4", ("8",)),
        ("submit other --workers 9000 --set bounds.max_workers=9000", ("9000", "fit")),
    ],
)
def test_an_impossible_plan_names_the_bound_and_what_is_possible(
    simulated: InteractiveShell, line: str, expected: tuple[str, ...]
) -> None:
    job = simulated.run_line_magic("dlrover", "attach ctr")
    before = job.snapshot()
    with pytest.raises(UsageError) as caught:
        simulated.run_line_magic("dlrover", line)
    assert "\n" not in str(caught.value)
    assert all(words in str(caught.value) for words in expected), str(caught.value)
    after = job.snapshot()
    assert (after.target, after.pins, after.mode, after.decisions) == (
        before.target, before.pins, Mode.MANUAL, before.decisions)  # fmt: skip
    assert [j.name for j in simulated.run_line_magic("dlrover", "jobs")] == ["ctr"]


def test_submitting_a_name_twice_is_refused_and_the_first_goes_on(simulated: InteractiveShell) -> None:
    with pytest.raises(UsageError, match="ctr"):
        simulated.run_line_magic("dlrover", "submit ctr --epochs 9")
    assert simulated.run_line_magic("dlrover", "attach ctr").snapshot().spec.n_epoch != 9


def test_attach_without_a_name_gives_the_job_or_the_list(
    typed: InteractiveShell, memory: MemoryCluster
) -> None:
    assert typed.run_line_magic("dlrover", "attach").name == "ctr"
    typed.run_line_magic("dlrover", "submit other")
    assert [j.name for j in typed.run_line_magic("dlrover", "attach")] == ["ctr", "other"]
    other = memory.links["other"]
    other.state = replace(other.state, phase=JobPhase.SUCCEEDED)
    assert typed.run_line_magic("dlrover", "attach").name == "ctr"
