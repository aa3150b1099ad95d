"""How long a client of this machine waits for its processes, and what it says then; in virtual time."""

from __future__ import annotations

import http.client
import os
import re
from threading import Barrier
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from support.virtual_time import SlowProcess, VirtualTime, as_shipped
from support.waiting import LIMIT_S

from dlrover_nb.core.backends.local import cluster as local_cluster
from dlrover_nb.core.backends.local.record import PROGRESS, MasterRecord, write_master
from dlrover_nb.core.client.link.calls import AskSummary
from dlrover_nb.core.driver.detached import start_time
from dlrover_nb.core.errors import BackendError

if TYPE_CHECKING:
    from pathlib import Path

MASTER = MasterRecord(os.getpid(), start_time(os.getpid()), 7070, "the-token")


def begun_after(due_s: float, folder: Path, **progress: float) -> MasterRecord:
    """Await a master that writes its address at a time, and meanwhile how it gets on."""
    time = VirtualTime()
    link = as_shipped("dlrover_nb.core.backends.local.link", time)
    time.at(due_s, lambda: write_master(folder, MASTER))
    for what, at_s in progress.items():
        time.at(at_s, lambda what=what: (folder / PROGRESS).write_text(what))
    return link._await_record("ads", folder, MASTER.pid)


def test_a_master_that_begins_within_its_limit_is_found(tmp_path: Path) -> None:
    assert begun_after(89.8, tmp_path) == MASTER


def test_a_master_that_does_not_begin_is_given_up_with_the_place_of_its_log(tmp_path: Path) -> None:
    text = f"the master of job ads did not start within 90 s; see {tmp_path}/"
    with pytest.raises(BackendError, match=f"^{re.escape(text)}.*, and try again$"):
        begun_after(90.2, tmp_path)


def test_a_master_that_gets_on_with_its_journal_is_given_its_whole_limit_again(tmp_path: Path) -> None:
    assert begun_after(170.0, tmp_path, reads=80.0, replays=160.0) == MASTER


class SilentConnection(http.client.HTTPConnection):
    """A connection to a master that takes a call and does not answer for a while."""

    virtual: VirtualTime
    answers_at_s = 0.0

    def send(self, data: object) -> None:
        pass

    def getresponse(self) -> object:  # type: ignore[override]  # what the link reads of it
        if not self.virtual.wait(lambda: self.virtual.now_s() >= self.answers_at_s, self.timeout):
            raise TimeoutError
        return SimpleNamespace(status=http.HTTPStatus.IM_A_TEAPOT, read=lambda: b"")


def test_a_master_that_does_not_answer_a_call_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error_words
) -> None:
    time = SilentConnection.virtual = VirtualTime()
    link = as_shipped("dlrover_nb.core.backends.local.link", time)
    monkeypatch.setattr(http.client, "HTTPConnection", SilentConnection)
    write_master(tmp_path, MASTER)
    time.at(30.0, lambda: None)
    SilentConnection.answers_at_s = 30.0
    with pytest.raises(BackendError, match="refused a call"):  # it has answered
        link.LocalLink("ads", tmp_path).send(AskSummary())
    SilentConnection.answers_at_s = 70.0
    with error_words(BackendError):
        link.LocalLink("ads", tmp_path).send(AskSummary())
    assert time.now_s() == 60.0


def test_masters_that_hang_delay_a_list_of_jobs_once_and_not_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words
) -> None:
    """Each call ends when as many are waiting as there are jobs."""
    runs = {f"job-{i}": tmp_path / f"{i}" for i in range(40)}
    for folder in runs.values():
        folder.mkdir()
        write_master(folder, MASTER)
    all_wait = Barrier(len(runs), timeout=LIMIT_S)

    class Hanging:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def summary(self) -> None:
            all_wait.wait()
            raise BackendError("no answer")

    monkeypatch.setattr(local_cluster, "LocalLink", Hanging)
    monkeypatch.setattr(local_cluster, "runs_here", lambda: runs)
    monkeypatch.setattr(local_cluster, "past_jobs", list)
    listed = local_cluster.LocalCluster().jobs()
    assert {each.name for each in listed} == runs.keys()
    (message,) = {each.message for each in listed}
    assert message == words


class Ending:
    """The record of a master that was asked to end."""

    pid = 1 << 30  # beyond all that a kernel gives

    def __init__(self, time: VirtualTime, ends_at_s: float) -> None:
        self._time, self._ends_at_s = time, ends_at_s

    @property
    def is_alive(self) -> bool:
        return self._time.now_s() < self._ends_at_s


def end_master(ends_at_s: float) -> None:
    time = VirtualTime()
    cluster = as_shipped("dlrover_nb.core.backends.local.cluster", time)
    cluster.read_master = lambda _: Ending(time, ends_at_s)
    cluster._end_master("the-folder")


def test_the_master_of_an_ended_job_is_given_a_minute_to_put_it_away(error_words) -> None:
    end_master(59.9)
    with error_words(BackendError):
        end_master(60.1)


def close_backend(ends_at_s: float, folder: Path) -> VirtualTime:
    time = VirtualTime()
    module = as_shipped("dlrover_nb.core.backends.local.backend", time)
    module.kill_group = lambda _: None
    module.sweep_groups = module.sweep_memory = lambda: None
    backend = module.LocalBackend(folder)
    backend._processes["ps-0"] = SlowProcess(time, ends_at_s, pid=1 << 30)
    backend.close()
    return time


def test_a_killed_node_is_waited_for_and_one_that_hangs_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, words
) -> None:
    assert close_backend(5.0, tmp_path).now_s() == 5.0
    assert not caplog.messages
    assert close_backend(5.1, tmp_path).now_s() == 5.0
    assert caplog.messages == [words]
