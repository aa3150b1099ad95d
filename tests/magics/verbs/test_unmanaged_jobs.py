"""Verbs on a job that other tools manage: what reads shows it, what changes is refused in words."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.cases import for_each
from support.jobs.cluster_double import MemoryCluster
from support.words import lines_with

from dlrover_nb import cli
from dlrover_nb.api.cluster import Cluster
from dlrover_nb.cli import GRAMMAR
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs.cluster.unmanaged import UnmanagedJob
from dlrover_nb.core.structs.job.job import JobSpec

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

THEIRS = UnmanagedJob(
    "raysubmit_Xy",
    "Ray job",
    "RUNNING",
    entrypoint="python train.py --epochs 3",
    started_at_s=1.79e9,
    message="Job is currently running.",
    facts=(("team", "ads"),),
    ended_by="ray job stop raysubmit_Xy",
)


class WithOthers(MemoryCluster):
    silent = ""

    def unmanaged_jobs(self) -> tuple[UnmanagedJob, ...]:
        if self.silent:
            raise BackendError(self.silent)
        return (THEIRS, replace(THEIRS, name="old", state="FAILED", is_final=True, ended_at_s=1.79e9 + 60))

    def unmanaged_log(self, job: UnmanagedJob, n_line: int) -> tuple[str, ...]:
        return tuple(f"{job.name} line {n}" for n in range(5))[-n_line:]


@pytest.fixture
def memory() -> MemoryCluster:
    return WithOthers()


def test_jobs_lists_those_of_others_below_ours(run, memory):
    memory.submit(JobSpec("ctr"))
    ours, others = str(Cluster(memory).jobs()).split("Jobs of others")
    assert "ctr" in ours
    assert "raysubmit_Xy" not in ours
    assert "raysubmit_Xy" in others
    assert "python train.py" in others
    assert "raysubmit_Xy" not in run("jobs")[1], "a program reads the rows of our jobs"
    assert [job["job"] for job in json.loads(run("jobs", "--json")[1])] == ["ctr"]


def test_jobs_says_why_those_of_others_are_not_known(run, memory, words):
    memory.submit(JobSpec("ctr"))
    memory.silent = "Ray's jobs cannot be read"
    assert lines_with(str(Cluster(memory).jobs()), "Warning:") == words
    assert run("jobs")[0] == cli.ExitCode.DONE
    code, _, err = run("status", "raysubmit_Xy")
    assert (code, "no job" in err) == (cli.ExitCode.MISTAKE, True)


@pytest.mark.parametrize("verb", ["status", "attach"])
def test_its_state_is_shown_with_what_ends_it(run, verb):
    code, out, err = run(verb, "raysubmit_Xy")
    assert (code, err) == (0, "")
    for words in (
        "RUNNING: Job is currently running.",
        "python train.py",
        "team",
        "ray job stop raysubmit_Xy",
    ):
        assert words in out
    (told,) = json.loads(run(verb, "raysubmit_Xy", "--json")[1])
    assert (told["job"], told["kind"], told["ended"], told["started_at_s"]) == (
        "raysubmit_Xy",
        "Ray job",
        False,
        1.79e9,
    )
    assert "ray job stop" not in run(verb, "old")[1], "it has ended"


def test_its_output_is_shown(run, words):
    code, out, err = run("logs", "raysubmit_Xy", "-n", "2")
    assert (code, err) == (0, "")
    assert "line 2" not in out
    assert "raysubmit_Xy line 3\nraysubmit_Xy line 4" in out
    assert run("logs", "raysubmit_Xy", "-n", "0")[2] == words
    code, _, err = run("logs", "raysubmit_Xy", "worker-0")
    assert (code, "that others run" in err) == (cli.ExitCode.MISTAKE, True)


CHANGES = (
    "accept raysubmit_Xy",
    "batches raysubmit_Xy worker-0=64",
    "delete raysubmit_Xy --force",
    "finish raysubmit_Xy",
    "mitigate raysubmit_Xy",
    "mode raysubmit_Xy auto",
    "override raysubmit_Xy --workers 3",
    "pin raysubmit_Xy --workers 2",
    "reject raysubmit_Xy",
    "scale raysubmit_Xy --workers 2",
    "shards raysubmit_Xy --skip 1",
    "stop raysubmit_Xy",
    "undo raysubmit_Xy",
    "wait raysubmit_Xy",
)


@for_each("line", CHANGES)
def test_what_changes_a_job_is_refused_with_whose_it_is_and_what_to_use(run, line):
    code, out, err = run(*line.split())
    assert (code, out) == (cli.ExitCode.MISTAKE, "")
    assert "raysubmit_Xy is a Ray job that others run (RUNNING)" in err
    assert "to end it: ray job stop raysubmit_Xy" in err
    assert line.split()[0] in GRAMMAR.verbs


def test_a_notebook_shows_it_too(shell: InteractiveShell):
    shell.run_line_magic("dlrover", "connect ray")
    assert "RUNNING" in str(shell.run_line_magic("dlrover", "status raysubmit_Xy"))
    assert "line 4" in str(shell.run_line_magic("dlrover", "logs raysubmit_Xy"))
