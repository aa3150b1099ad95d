"""The command line: the same verbs as text, exit codes, and Ctrl-C that never ends a job."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from itertools import count
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from support.cases import for_each

from dlrover_nb import __version__, cli, watch
from dlrover_nb.core.errors import JobFailedError
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec

if TYPE_CHECKING:
    from pathlib import Path

    from support.jobs.cluster_double import MemoryCluster


def test_verbs_connect_by_themselves_and_print_text(run, memory: MemoryCluster) -> None:
    assert run("submit", "ctr", "--workers", "2")[0] == 0
    code, out, err = run("status")
    assert (code, err) == (0, "")
    assert "Job ctr: training" in out
    assert memory.connected == [("ray", None, None)] * 2
    assert memory.may_start == [True, False], "only a submit may start a cluster of our own"


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("10.0.0.1:6379", ("ray", "10.0.0.1:6379", {})),
        ("kubernetes://staging/ml", ("kubernetes", None, {"context": "staging", "namespace": "ml"})),
        ("kubernetes:///ml", ("kubernetes", None, {"namespace": "ml"})),
        ("kubernetes://", ("kubernetes", None, {})),
        ("kubernetes://arn:aws:eks:eu:1:cluster%2Fads/", ("kubernetes", None, {"context": "arn:aws:eks:eu:1:cluster/ads"})),
    ],
)  # fmt: skip
def test_the_variable_names_the_cluster_of_every_verb(
    memory: MemoryCluster, monkeypatch, address: str, told
) -> None:
    monkeypatch.setattr(cli, "connect", memory.connect)
    monkeypatch.setenv(cli.ADDRESS, address)
    assert cli.main(["jobs"]) == 0
    assert (*memory.connected[0][:2], memory.options[0]) == told


def test_an_address_with_too_many_parts_says_what_is_expected(run, monkeypatch, capsys) -> None:
    monkeypatch.setenv(cli.ADDRESS, "kubernetes://arn:cluster/ads/ml")
    assert cli.main(["jobs"]) == 2
    assert "expected kubernetes://CONTEXT/NAMESPACE" in capsys.readouterr().err


@for_each(
    ("words", "message"),
    [
        (["stauts"], "dlrover-nb: unknown verb 'stauts'; did you mean show?; see dlrover-nb help"),
        (["status", "nope"], "dlrover-nb: no job 'nope' here"),
        (["submit", "x", "--ps", "0"], "dlrover-nb: plan.ps: node count must be >= 1, got 0"),
        (["submit", "--file", "nowhere.yaml"], "dlrover-nb: no job file"),
        (["status"], "dlrover-nb: no job here; start one with submit"),
        (["connect", "sim"], "dlrover-nb: a simulated cluster lives in one process"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(run, words: list[str], message: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_the_new_verbs_are_there_in_a_shell_too(
    run, memory: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("submit", "ctr")
    memory.links["ctr"].propose(1)
    assert run("export", "ctr", "--plan", "p1", "-o", "job.yaml")[0] == 0
    code, out, _ = run("import", "job.yaml")
    assert (code, "plan.worker.count" in out) == (0, True)
    code, out, _ = run("import", "job.yaml", "--check")
    assert (code, out.splitlines()[-1]) == (
        0,
        (
            "Valid against the real schemas, unknown fields refused: "
            "1 ConfigMap, 1 Secret, 1 ServiceAccount, 1 Role, 1 RoleBinding, 1 ElasticJob."
        ),
    )
    assert run("import", "job.yaml", "--apply")[0] == 0
    assert memory.links["ctr"].decisions[-1].verdict == "scale"
    assert run("history", "no-such-job")[0] == 2
    assert run("score")[0] == 0


def test_wait_tells_by_its_exit_code_how_the_job_ended(run, memory: MemoryCluster) -> None:
    memory.submit(JobSpec("ctr"))
    for phase, code in ((JobPhase.SUCCEEDED, 0), (JobPhase.STOPPED, 0), (JobPhase.FAILED, 1)):
        memory.links["ctr"].end(phase)
        assert run("wait")[0] == code
        assert run("watch", "ctr")[0] == code


def test_submit_can_wait_for_the_end_of_its_job(run, memory: MemoryCluster, caplog) -> None:
    begin = memory.submit

    def submit_one_that_fails(spec, *rest, **options):
        job = begin(spec, *rest, **options)
        memory.links[spec.name].end(JobPhase.FAILED)
        return job

    memory.submit = submit_one_that_fails  # type: ignore[method-assign]
    code, shown, _ = run("submit", "ctr", "--wait", "--worker-memory", "64")
    assert code == 1
    assert "failed" in shown
    assert "job ctr: " in caplog.text, "a doubt is said before the wait"
    assert "64 MiB" in caplog.text


@pytest.mark.parametrize("verb", ["wait", "watch"])
def test_ctrl_c_lets_go_of_the_job(run, memory: MemoryCluster, verb: str) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    memory.submit(JobSpec("ctr"))
    memory.links["ctr"].on_snapshot = interrupt
    code, _, err = run(verb, "ctr")
    assert (code, err) == (130, "job ctr goes on; `dlrover-nb end ctr --now` stops it\n")
    assert memory.links["ctr"].stopped == []


def test_ctrl_c_elsewhere_ends_the_call_without_a_traceback(run, memory: MemoryCluster) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    memory.submit(JobSpec("ctr"))
    memory.links["ctr"].on_snapshot = interrupt
    assert run("status", "ctr") == (130, "", "interrupted\n")


def test_watch_redraws_until_the_job_ends(memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    handle, link = memory.submit(JobSpec("ctr")), memory.links["ctr"]
    n_look = count(1)
    link.on_snapshot = lambda: link.end(JobPhase.SUCCEEDED) if next(n_look) == 3 else None
    monkeypatch.setattr(watch, "REDRAW_S", 0.0)
    screen = io.StringIO()
    snapshot = watch.watch(handle, Console(file=screen, width=120, force_terminal=True))
    assert snapshot.phase is JobPhase.SUCCEEDED
    assert "ctr" in screen.getvalue()


def test_a_failed_demo_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words
) -> None:
    def fail(out: Path, console: Console) -> object:
        raise JobFailedError(f"the demo's job ended as failed; see {out.name}")

    monkeypatch.setattr("dlrover_nb.demo.run_demo", fail)
    assert cli.main(["demo", "--out", "here"]) == 1
    assert capsys.readouterr().err == words


def test_a_job_file_may_come_from_the_standard_input(
    run, memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("name: piped\n"))
    assert run("submit", "--file", "-")[0] == 0
    assert "piped" in memory.links


@pytest.mark.more
def test_help_and_version_need_no_cluster(tmp_path: Path) -> None:
    for words, expected in ((["--version"], __version__), ([], "dlrover-nb VERB"), (["demo", "-h"], "--out")):
        told = subprocess.run(
            [sys.executable, "-m", "dlrover_nb.cli", *words], capture_output=True, text=True, check=True
        )
        assert expected in told.stdout


def test_an_encoding_without_our_characters_ends_no_call():
    script = "import sys; from dlrover_nb import cli; sys.exit(cli.main(['help', 'plan']))"
    environ = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"<= 12" in done.stdout
