import pytest
from rich.console import Console
from support.jobs import builders

from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.snapshot import ROOM, NodePhase, NodeView
from dlrover_nb.terminal import render, sparkline

LONG = (
    "+37.0 s  p2 proposed: "
    + "one more worker and one more server, and we cannot tell yet which part gets faster; " * 3
)


INSUFFICIENT = "0/2 nodes are available: 2 Insufficient cpu."


def waiting_nodes():
    ready = builders.snapshot().nodes
    waits = [("worker-1", INSUFFICIENT), ("worker-2", INSUFFICIENT), ("ps-1", ROOM)]
    return (
        *ready,
        *(
            NodeView(name, Role(name[:-2]), NodePhase.PENDING, 1.0, 512, False, 0.0, waits_for=why)
            for name, why in waits
        ),
    )


def drawn(width, **changes):
    console = Console(width=width, height=40)
    with console.capture() as capture:
        console.print(render(builders.snapshot(**changes), [float(i) for i in range(300)]))
    return capture.get()


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_panel_takes_the_width_and_cuts_nothing(width):
    text = drawn(width, story=(LONG,))
    lines = text.splitlines()
    assert {len(line) for line in lines} == {width}
    assert "…" not in text
    assert "which part gets faster; one more" in " ".join(
        " ".join(line.strip("│ ") for line in lines).split()
    )


def test_an_open_proposal_stands_in_the_panel_with_its_band():
    text = drawn(100)
    proposal = builders.snapshot().open_proposal
    assert f"proposal {proposal.id}" in text
    assert "90 % band" in text
    assert proposal.candidate.plan.short in text


def test_a_cpu_limit_that_nobody_enforces_is_marked():
    assert "advisory" in drawn(100)


@pytest.mark.parametrize("width", [80, 160])
def test_nodes_that_wait_say_for_what_once_and_cut_nothing(width):
    text = drawn(width, nodes=waiting_nodes())
    assert {len(line) for line in text.splitlines()} == {width}
    told = " ".join(" ".join(line.strip("│ ") for line in text.splitlines()).split())
    assert told.count(f"waiting: {INSUFFICIENT} (worker-1, worker-2)") == 1
    assert "waiting for room: ps-1" in told


def test_a_sparkline_shows_the_latest_values_between_zero_and_their_largest():
    assert sparkline([0.0, 1.0, 2.0, 8.0], width=3) == "▂▃█"
    assert sparkline([], width=10) == ""
    assert sparkline([0.0, 0.0]) == ""
