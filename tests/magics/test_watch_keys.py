"""The keys of `dlrover-nb show --live`: what each means, and that they steer a job from a terminal."""

from __future__ import annotations

import io
import os
import pty
import termios
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from support.jobs import builders
from support.jobs.cluster_double import snapshot_of

from dlrover_nb import watch
from dlrover_nb.core.commands.requests import SetMode
from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.jobs.cluster_double import MemoryCluster

PROMPTS = [watch.Prompt(), watch.Prompt("no proposal is open"), watch.Prompt(asks_mode=True)]
TRAINING = snapshot_of(JobSpec("ctr"))


@given(st.sampled_from(PROMPTS), st.characters())
def test_without_an_open_proposal_no_key_answers_one(prompt: watch.Prompt, key: str) -> None:
    _, order = watch.press(prompt, key, TRAINING)
    assert order is None or isinstance(order.request, SetMode)


@given(st.characters())
def test_after_m_the_next_key_is_a_mode_or_changes_nothing(key: str) -> None:
    asked, order = watch.press(watch.Prompt(), "m", TRAINING)
    assert order is None
    after, order = watch.press(asked, key, TRAINING)
    assert (order.request.mode if order else None) == {"m": "manual", "s": "suggest", "a": "auto"}.get(key)
    assert order is None or order.version == TRAINING.version
    assert after in {watch.Prompt(), watch.Prompt("the mode stays")}


class Terminal:
    """A terminal: `press` is where its user types, `tty` what a program reads and writes."""

    def __init__(self) -> None:
        self.press, descriptor = pty.openpty()
        self.tty = os.fdopen(descriptor, "r+b", buffering=0)
        self.before = termios.tcgetattr(self.press)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.tty.close()
    os.close(made.press)


def watched(memory: MemoryCluster, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, *typed: bytes) -> str:
    """Return the screen of a watch; each text is typed while the job is asked for its state."""
    link, texts, looks = memory.links["ctr"], list(typed), count()

    def type_next() -> None:
        if texts:
            os.write(terminal.press, texts.pop(0))
        elif next(looks) > 20:  # the keys did not arrive: end, and let the test say so
            link.end(JobPhase.FAILED)

    link.on_snapshot = type_next
    monkeypatch.setattr(watch, "REDRAW_S", 0.01)
    monkeypatch.setattr("sys.stdin", terminal.tty)
    monkeypatch.setattr("sys.stdout", terminal.tty)
    screen = io.StringIO()
    watch.watch(memory.job("ctr"), Console(file=screen, width=120, force_terminal=True))
    return screen.getvalue()


def test_keys_answer_the_proposal_on_the_screen_and_set_the_mode(
    memory: MemoryCluster, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.submit(JobSpec("ctr"))
    memory.links["ctr"].propose(3)
    screen = watched(memory, terminal, monkeypatch, b"ar", b"\x1b[A", b"ma", b"x", b"q")
    made = [(d.verdict, d.proposal, d.mode) for d in memory.links["ctr"].decisions]
    assert made == [
        (Verdict.ACCEPT, "p3", None),
        (Verdict.REJECT, "p3", None),
        (Verdict.MODE, None, Mode.AUTO),
    ]
    assert "a accept p3" in screen
    assert "d2: reject p3" in screen
    assert "job ctr goes on; `dlrover-nb end ctr --now` stops it" in screen
    assert termios.tcgetattr(terminal.press) == terminal.before, "the terminal is as it was"


def test_keys_with_shift_answer_the_action_on_the_screen(
    memory: MemoryCluster, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.submit(JobSpec("ctr"))
    link = memory.links["ctr"]
    link.propose(3)
    link.state = replace(link.state, mitigations=(builders.mitigation(),), stragglers=(builders.straggler(),))
    screen = watched(memory, terminal, monkeypatch, b"AR", b"q")
    assert [(d.verdict, d.proposal) for d in link.decisions] == [
        (Verdict.ACCEPT, "m1"),
        (Verdict.REJECT, "m1"),
    ]
    assert "A accept m1   R reject m1" in screen
    assert "action m1: restart worker-1" in screen
    assert "worker-1 is slow: it works 24.0 ms" in screen


def test_a_key_with_shift_answers_no_proposal() -> None:
    prompt, order = watch.press(watch.Prompt(), "A", TRAINING)
    assert (prompt.answer, order) == ("no action is open", None)


def test_a_proposal_that_was_replaced_meanwhile_is_not_accepted(
    memory: MemoryCluster, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.submit(JobSpec("ctr"))
    link = memory.links["ctr"]
    link.propose(3)
    monkeypatch.setattr(memory.job("ctr").link, "decide", _after(lambda: link.propose(4), link.decide))
    screen = watched(memory, terminal, monkeypatch, b"a", b"q")
    assert link.decisions == []
    assert "p3 is no longer open" in screen


def _after(first, then):
    def call(decision):
        first()
        return then(decision)

    return call


def test_where_the_input_is_no_terminal_watch_just_draws(
    memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = memory.submit(JobSpec("ctr"))
    memory.links["ctr"].end(JobPhase.SUCCEEDED)
    monkeypatch.setattr("sys.stdin", io.StringIO("q"))
    screen = io.StringIO()
    watch.watch(handle, Console(file=screen, width=120))
    assert "q quit" not in screen.getvalue()


def test_the_story_speaks_the_words_of_the_shell(memory: MemoryCluster) -> None:
    handle, link = memory.submit(JobSpec("ctr")), memory.links["ctr"]
    link.state = replace(link.state, story=("t+1  shard 7 waits; see %dlrover shards ctr",))
    link.end(JobPhase.STOPPED)
    screen = io.StringIO()
    watch.watch(handle, Console(file=screen, width=120))
    assert "see dlrover-nb shards ctr" in screen.getvalue()
