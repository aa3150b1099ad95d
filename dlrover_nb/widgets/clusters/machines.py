"""What the machines of a cluster offer and what is used, as a drawing and its table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import StaticChart, Table, escape
from dlrover_nb.widgets.svg.palette import BLUE, GREEN
from dlrover_nb.widgets.svg.svg_elements import card, text
from dlrover_nb.widgets.theme import SVG_GRID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.planner.availability.placement import Machine

MOST_DRAWN = 24  # machines; of more, those with most cores used
_WIDTH, _LEFT, _BAR, _ROW, _TOP = 560, 96, 200, 34, 44


def machines_chart(machines: Sequence[Machine]) -> StaticChart:
    """Return a bar of cores and one of memory for each machine: how much of it is used."""
    drawn = sorted(enumerate(machines, 1), key=lambda each: -each[1].used_cpu)[:MOST_DRAWN]
    drawn.sort(key=lambda each: each[0])
    rows = "".join(_row(_TOP + i * _ROW, number, machine) for i, (number, machine) in enumerate(drawn))
    head = text(_LEFT, _TOP - 12, "cores used") + text(_LEFT + _BAR + 40, _TOP - 12, "memory used")
    which = "each of" if len(drawn) == len(machines) else "the most used"
    words = f"Cores and memory used on {which} {len(drawn)} machines, by placing all nodes largest first."
    height = _TOP + len(drawn) * _ROW + 8
    return StaticChart(card("Machines", words, _WIDTH, height, head + rows), machines_table(machines))


def machines_table(machines: Sequence[Machine]) -> Table:
    """Return the same numbers, and whose nodes stand where."""
    rows = tuple(
        (
            f"{number}",
            units.cores(m.cpu),
            units.cores(m.used_cpu),
            units.cores(m.free_cpu),
            units.memory(m.memory_mib),
            units.memory(m.used_memory_mib),
            units.memory(m.free_memory_mib),
            _jobs(m),
        )
        for number, m in enumerate(machines, 1)
    )
    head = ("machine", "cores", "used", "free", "memory", "used", "free", "nodes of")
    return Table("Machines", head, rows)


def _jobs(machine: Machine) -> str:
    counts: dict[str, int] = {}
    for job, _, _ in machine.nodes:
        counts[job] = counts.get(job, 0) + 1
    return ", ".join(f"{job} ({n})" for job, n in counts.items()) or units.MISSING


def _row(y: float, number: int, machine: Machine) -> str:
    cpu = machine.used_cpu / machine.cpu if machine.cpu else 0.0
    memory = machine.used_memory_mib / machine.memory_mib if machine.memory_mib else 0.0
    return (
        text(8, y + 13, f"machine {number}")
        + _bar(_LEFT, y, cpu, BLUE, f"{units.cores(machine.used_cpu)} of {units.cores(machine.cpu)}")
        + _bar(
            _LEFT + _BAR + 40,
            y,
            memory,
            GREEN,
            f"{units.memory(machine.used_memory_mib)} of {units.memory(machine.memory_mib)}",
        )
    )


def _bar(x: float, y: float, share: float, color: str, words: str) -> str:
    """Return a bar with its numbers below it, so that they are read on paper of any color."""
    full = min(max(share, 0.0), 1.0) * _BAR
    return (
        f'<rect x="{x}" y="{y}" width="{_BAR}" height="10" fill="none" stroke="{SVG_GRID}"/>'
        f'<rect x="{x}" y="{y}" width="{full:.1f}" height="10" fill="{color}"><title>{escape(words)}</title>'
        f"</rect>{text(x, y + 22, words)}"
    )
