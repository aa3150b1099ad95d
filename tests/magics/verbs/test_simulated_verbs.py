"""The verbs on a simulated cluster: everything they show of it says that it is simulated."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from IPython.core.error import UsageError
from support.waiting import LIMIT_S, until

from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.magics.commands import Commands
from dlrover_nb.magics.shell import loaded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell

pytestmark = pytest.mark.more


def connected(shell: InteractiveShell, speed: int) -> Iterator[InteractiveShell]:
    magics = loaded(shell)
    assert magics is not None
    magics.commands = Commands(connect)
    shell.run_line_magic("dlrover", f"connect sim --machines 2 --speed {speed}")
    shell.run_line_magic("dlrover", "submit quick-start --epochs 100000")
    yield shell
    shell.run_line_magic("dlrover", "shutdown --force")


@pytest.fixture
def simulated(shell: InteractiveShell) -> Iterator[InteractiveShell]:
    yield from connected(shell, 10)


@pytest.fixture
def fast(shell: InteractiveShell) -> Iterator[InteractiveShell]:
    """Return a shell whose job is soon measured, fitted and advised on."""
    yield from connected(shell, 2000)


def test_every_view_of_a_simulated_job_says_so(simulated):
    run = simulated.run_line_magic
    for line in ("status quick-start", "plans quick-start", "jobs"):
        shown = run("dlrover", line)
        assert "(simulated)" in str(shown)
        assert "(simulated)" in shown._repr_mimebundle_()["text/html"]


def test_a_simulated_cluster_ends_with_the_next_connect_but_not_under_running_jobs(simulated):
    run = simulated.run_line_magic
    first = loaded(simulated).commands.session.cluster
    with pytest.raises(UsageError, match="still run"):
        run("dlrover", "connect sim --machines 1")
    run("dlrover", "stop quick-start")
    assert "simulated cluster: 1 machine," in str(run("dlrover", "connect sim --machines 1"))
    assert "is over" in str(first.shutdown())


def test_a_pin_holds_until_it_is_cleared(fast):
    run = fast.run_line_magic
    job = run("dlrover", "attach quick-start")
    end_s = time.monotonic() + LIMIT_S
    while job.snapshot().running is None:
        assert time.monotonic() < end_s
        time.sleep(0.02)
    shown = run("dlrover", "pin quick-start --ps 1 --why 'one is enough'")
    assert "ps = 1" in str(shown)
    assert job.snapshot().pins.ps == 1
    with pytest.raises(UsageError, match="ps = 1"):
        run("dlrover", "scale quick-start --ps 2")
    run("dlrover", "pin quick-start --workers 1")
    assert (job.snapshot().pins.ps, job.snapshot().pins.workers) == (1, 1)
    run("dlrover", "pin quick-start --clear")
    assert not job.snapshot().pins
    with pytest.raises(UsageError, match="nothing to change"):
        run("dlrover", "pin quick-start")


def test_what_another_plan_would_bring_is_asked_and_nothing_changes(fast, words):
    run = fast.run_line_magic
    job = run("dlrover", "attach quick-start")
    job.wait(LIMIT_S, until="proposal")
    before = job.snapshot()
    shown = run("dlrover", "whatif quick-start --workers 2")
    assert shown.weighed[0].plan.worker.count == 2
    assert shown.weighed[0].candidate is not None
    assert "(simulated)" in str(shown)
    refusal = run("dlrover", "whatif quick-start --workers 9000").weighed[0].refusal
    assert refusal == words
    told = run("dlrover", "why quick-start")
    after = job.snapshot()
    assert told.explanation.proposal in {p.id for p in after.proposals}
    assert f"Why proposal {told.explanation.proposal} of quick-start (simulated)" in str(told)
    assert (after.target, after.decisions, after.mode) == (before.target, before.decisions, before.mode)
    with pytest.raises(UsageError, match="p77"):
        run("dlrover", "why quick-start p77")


def test_the_latest_decision_is_taken_back_and_made_again(simulated):
    run = simulated.run_line_magic
    job = run("dlrover", "attach quick-start")
    run("dlrover", "mode quick-start manual")
    told = run("dlrover", "undo quick-start --why 'not yet'")
    assert (job.snapshot().mode, told.decision.undoes, told.decision.why) == ("suggest", "d1", "not yet")
    run("dlrover", "undo")
    assert job.snapshot().mode == "manual"
    with pytest.raises(UsageError, match="d1"):
        run("dlrover", "undo quick-start d1")
    assert job.snapshot().mode == "manual"


def test_a_simulated_job_tells_what_its_nodes_wrote_or_that_it_cannot(simulated):
    shown = simulated.run_line_magic("dlrover", "logs -n 5")
    assert len(shown) <= 5
    assert "Logs of quick-start" in str(shown)
    with pytest.raises(UsageError, match="worker-99"):
        simulated.run_line_magic("dlrover", "logs worker-99")
    with pytest.raises(UsageError, match="0"):
        simulated.run_line_magic("dlrover", "logs -n 0")


def test_all_jobs_are_followed_in_one_view(simulated):
    shown = simulated.run_line_magic("dlrover", "dash")
    bundle = shown._repr_mimebundle_()
    assert "quick-start" in bundle["text/plain"]
    assert "quick-start" in str(shown)
    assert "<svg" in bundle["text/html"]
    with pytest.raises(UsageError, match="quick-start"):
        simulated.run_line_magic("dlrover", "dash quick-stat")
    assert simulated.run_line_magic("dlrover", "dash quick-start")


def test_no_history_is_kept_of_a_simulated_job(simulated, error_words):
    with error_words(NotFoundError):
        simulated.run_line_magic("dlrover", "attach quick-start").history()
    with error_words(UsageError):
        simulated.run_line_magic("dlrover", "history quick-start")


def test_a_simulated_job_has_no_shard_to_decide_about(simulated, error_words):
    assert "Shards of quick-start (simulated)" in str(simulated.run_line_magic("dlrover", "shards"))
    with error_words(UsageError):
        simulated.run_line_magic("dlrover", "shards --skip 1")


def test_a_submit_says_which_plans_the_cluster_allows(simulated):
    run = simulated.run_line_magic
    named = "--set bounds.max_workers=3 --set bounds.max_ps=1 --set bounds.worker_cpus=[1]"
    first = run("dlrover", f"submit partly --epochs 100000 {named}").first
    shown = " ".join(str(first).split())
    assert "Plans may have up to 3 workers of 1 core and 1 PS of 0.25 to" in shown
    assert "ps_cpus follow from the cluster" in shown
    whole = run("dlrover", f"submit wholly --epochs 100000 {named} --set bounds.ps_cpus=[1]").first
    assert "from the cluster" not in " ".join(str(whole).split())


def test_a_submit_speaks_of_its_deadline_and_status_of_what_can_be_promised(fast):
    run = fast.run_line_magic
    job = run("dlrover", "submit due --epochs 100000 --set deadline_s=60")
    assert "Deadline" in str(job.first)
    until(lambda: job.snapshot().deadline, "an outlook by the first fit")
    shown = " ".join(str(job.status()).split())
    assert "90 %" in shown
    assert "earliest end" in shown


def test_no_server_is_started_for_a_cluster_of_this_kernel(simulated, error_words):
    with error_words(UsageError):
        simulated.run_line_magic("dlrover", "serve")
    with pytest.raises(UsageError, match="has started no dashboard"):
        simulated.run_line_magic("dlrover", "serve --stop")
