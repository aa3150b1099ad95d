"""Actions of another installed package on a job's nodes: done, failed, and begun again after a master's end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from support.cases import for_each
from support.driver.driver_world import succeeded
from support.waiting import until

from dlrover_nb.core.driver.loop.own_actions import OwnActions
from dlrover_nb.core.structs.decisions.actions import ActionChoice, OwnAction
from dlrover_nb.core.structs.decisions.decisions import Decision, ProposalStatus, Verdict
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.driver.driver_world import DriverWorld

    from dlrover_nb.core.structs.decisions.decisions import Mitigation

ACTIONS = """
from pathlib import Path

def note(action, spec):
    with Path({calls!r}).open("a") as file:
        file.write(f"{{spec.name}} {{action.node}}\\n")

def fails(action, spec):
    note(action, spec)
    raise OSError("no such machine")
"""
POINTS = "[dlrover_nb.actions]\nnote = their_actions:note\nfails = their_actions:fails\n"


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a package that adds actions; return the file of its calls."""
    folder, calls = tmp_path / "site", tmp_path / "calls"
    metadata = folder / "their_actions-1.0.dist-info"
    metadata.mkdir(parents=True)
    (folder / "their_actions.py").write_text(ACTIONS.format(calls=str(calls)))
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: their-actions\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "their_actions", raising=False)
    return calls


def ordered(job: DriverWorld, name: str, node: str = "worker-0") -> Decision:
    action = ActionChoice.of(OwnAction(name, node, Role.WORKER))
    return job.driver.decide(Decision(Verdict.MITIGATE, "ada", job.at_s, action=action))


def ended(job: DriverWorld) -> Mitigation:
    is_open = {ProposalStatus.PENDING, ProposalStatus.ACCEPTED, ProposalStatus.APPLYING}
    return job.until(lambda now: now.mitigations and now.mitigations[-1].status not in is_open).mitigations[
        -1
    ]


@for_each(
    ("name", "status", "note"),
    [
        ("note", ProposalStatus.APPLIED, ""),
        ("fails", ProposalStatus.FAILED, "fails of dlrover_nb.actions failed with OSError: no such machine"),
    ],
)
def test_what_a_function_of_a_package_does_is_recorded_as_any_action(
    play: Callable[..., DriverWorld], calls: Path, name: str, status: ProposalStatus, note: str
) -> None:
    job = play(mode=Mode.SUGGEST, n_epoch=20)
    job.until(lambda now: now.running and now.train.n_sample_done)
    decided = ordered(job, name)
    until(calls.exists, what="its call")
    action = ended(job)
    assert calls.read_text() == "real worker-0\n"
    assert (action.decision, action.words, action.status) == (decided.id, f"{name} for worker-0", status)
    assert action.note.startswith(note)
    succeeded(job)
    calls.unlink()


def test_an_action_that_no_package_has_fails_with_the_nearest_name(
    play: Callable[..., DriverWorld], calls: Path, words
) -> None:
    job = play(mode=Mode.SUGGEST, n_epoch=20)
    job.until(lambda now: now.running and now.train.n_sample_done)
    ordered(job, "not")
    action = ended(job)
    assert action.status is ProposalStatus.FAILED
    assert action.note == words
    assert not calls.exists()


def test_an_action_under_way_is_begun_again_by_the_next_master(
    play: Callable[..., DriverWorld], calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(OwnActions, "begin", lambda *_: True)  # it is killed before it does anything
        job = play(mode=Mode.SUGGEST, n_epoch=20)
        job.until(lambda now: now.running and now.train.n_sample_done)
        decided = ordered(job, "note")
        job.crash()
    job.come_back()
    until(calls.exists, what="its call")
    action = ended(job)
    assert (action.decision, action.status) == (decided.id, ProposalStatus.APPLIED)
    assert calls.read_text() == "real worker-0\n"
    succeeded(job, exactly_once=False)
