"""A job in a terminal: one renderable made from a snapshot, redrawn by the caller.

It fills the terminal: bars stretch, sentences wrap, and nothing is cut off at 80 columns or more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.client.until import first_steps
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.snapshot import NodePhase, waits_told
from dlrover_nb.widgets.jobs.headline import headline
from dlrover_nb.widgets.jobs.status import reported_words
from dlrover_nb.widgets.mitigations import facts, head_words, slow_words, worst
from dlrover_nb.widgets.svg.sparkline import sparkline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from dlrover_nb.core.structs.decisions.candidates import Candidate
    from dlrover_nb.core.structs.decisions.decisions import Mitigation, Proposal
    from dlrover_nb.core.structs.plan.prices import PriceTable
    from dlrover_nb.core.structs.training.samples import TimeSplit
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, NodeView

N_STORY = 5
N_PART = 3  # of a step's time: the largest parts


def render(snapshot: JobSnapshot, rates: Sequence[float] = ()) -> RenderableType:
    """Draw the job; `rates` are recent samples per second, oldest first."""
    parts: list[RenderableType] = [_sentence(snapshot), _state(snapshot), _progress(snapshot)]
    parts.append(_throughput(snapshot, rates))
    if nodes := [node for node in snapshot.nodes if node.phase != "gone"]:
        parts.append(_nodes(nodes))
    if snapshot.fit is not None:
        parts.append(Text(f"model  {snapshot.fit.note}", style="dim"))
    if (proposal := snapshot.open_proposal) is not None:
        parts.append(proposal_panel(proposal, snapshot.spec.prices))
    if not snapshot.phase.is_final:
        parts += [
            Text(slow_words(each, snapshot.spec.name), style="yellow") for each in worst(snapshot.stragglers)
        ]
        if snapshot.open_mitigation is not None:
            parts.append(action_panel(snapshot.open_mitigation))
    parts.append(_story(snapshot.story[-N_STORY:]))
    return Panel(Group(*parts), title=f"dlrover-nb  {snapshot.title}", title_align="left")


def proposal_panel(proposal: Proposal, prices: PriceTable) -> RenderableType:
    """Draw a proposal: its changes, predicted effect and reason."""
    candidate, band = proposal.candidate, proposal.candidate.prediction
    text = (
        f"{proposal.baseline.plan.short}  ->  {candidate.plan.short}\n"
        f"predicted when proposed: {band.samples_per_s:,.0f} samples/s "
        f"(90 % band {band.low:,.0f} to {band.high:,.0f}), "
        f"{_price_words(candidate, prices)}\n{proposal.why}"
    )
    return Panel(Text(text), title=f"proposal {proposal.id}: {proposal.kind.words}", title_align="left")


def action_panel(mitigation: Mitigation) -> RenderableType:
    """Draw an action against a straggler: its reason, gain and cost."""
    text = "\n".join(f"{name}: {value}" for name, value in facts(mitigation))
    return Panel(Text(text), title=f"action {head_words(mitigation)}", title_align="left")


def _price_words(candidate: Candidate, prices: PriceTable) -> str:
    if candidate.cost_per_hour is None:
        return f"{candidate.plan.total_cpu:g} cores, price unknown"
    return f"{candidate.cost_per_hour:.3f} {prices.currency} per hour{prices.note}"


def _sentence(snapshot: JobSnapshot) -> Text:
    lead = headline(snapshot)
    text = Text(lead.text, style="bold")
    return text.append(f"\n{lead.detail}", style="not bold dim") if lead.detail else text


def _state(snapshot: JobSnapshot) -> Text:
    seconds = (snapshot.ended_at_s or snapshot.at_s) - snapshot.started_at_s
    text = Text(f"{snapshot.phase}", style="bold")
    text.append(f"  {seconds:.0f} s  mode {snapshot.mode}  plan {snapshot.target.short}", style="")
    if snapshot.running != snapshot.target and not snapshot.phase.is_final:
        text.append("  (changing)", style="italic")
    if snapshot.message:
        text.append(f"  {snapshot.message}")
    return text


def _progress(snapshot: JobSnapshot) -> RenderableType:
    train = snapshot.train
    total = max(train.n_sample_total, 1)
    row = Table.grid(padding=(0, 1), expand=True)
    row.add_column(ratio=1)
    row.add_column(no_wrap=True)
    row.add_row(
        ProgressBar(total=total, completed=train.n_sample_done),
        f"{percent(train.n_sample_done / total, 1)} of {train.n_sample_total:,} samples",
    )
    counts = Text(f"shards  {train.done:,} done, {train.doing:,} doing, {train.todo:,} to do", style="dim")
    reported = snapshot.reported
    return Group(
        row, counts, *([] if reported is None else [Text(f"reported  {reported_words(snapshot, reported)}")])
    )


def _throughput(snapshot: JobSnapshot, rates: Sequence[float]) -> RenderableType:
    if first_steps(snapshot):
        return Text("")
    row = Table.grid(padding=(0, 1), expand=True)
    row.add_column(no_wrap=True)
    row.add_column(ratio=1)
    row.add_column(no_wrap=True)
    loss = "" if snapshot.loss is None else f"loss {snapshot.loss:.4f}"
    rate = "" if snapshot.phase.is_final else f"{snapshot.samples_per_s:,.0f} samples/s"
    row.add_row(rate, _Sparkline(rates), loss)
    return row


@dataclass(frozen=True, slots=True)
class _Sparkline:
    """As many of the latest values as there is room for."""

    values: Sequence[float]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(sparkline(self.values, options.max_width), no_wrap=True)


def _story(lines: Sequence[str]) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    for line in lines:
        at, apart, what = line.partition("  ")
        cells = (at, what.strip()) if apart else ("", line)
        table.add_row(*(Text(cell, style="dim") for cell in cells))
    return table


def _nodes(nodes: Sequence[NodeView]) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("node", "state", "cpu of", "memory of", "step"):
        table.add_column(heading, no_wrap=True)
    table.add_column("most of it")
    for node in nodes:
        table.add_row(*_node_cells(node))
    below = [Text(line, style="yellow") for line in waits_told(nodes)]
    if any("*" in cell for node in nodes for cell in _node_cells(node)):
        below.append(Text("* advisory: this machine does not hold the node to this limit", style="dim"))
    return Group(table, *below)


def _node_cells(node: NodeView) -> tuple[str, ...]:
    is_here = node.phase is not NodePhase.PENDING  # a pending node has no limit yet
    may = f"{node.cpu:g}{'*' if is_here and not node.cpu_enforced else ''}"
    memory = f"{node.memory_mib} MiB{'*' if is_here and not node.memory_enforced else ''}"
    if (last := node.last) is None:
        return (node.id, node.state, f"- / {may}", f"- / {memory}", "", "")
    return (
        node.id,
        node.state,
        f"{last.cpu_cores:.2f} / {may}",
        f"{last.memory_mib:.0f} / {memory}",
        f"{last.iter_s * 1e3:.1f} ms",
        _split_words(node.role, last.split),
    )


def _split_words(role: Role, split: TimeSplit) -> str:
    """Name the largest parts of a step; a worker waits for its PS."""
    parts = {
        "data": split.data_s,
        "pull" if role is Role.WORKER else "lookup": split.lookup_s,
        "compute": split.compute_s,
        "push" if role is Role.WORKER else "update": split.update_s,
        "peers": split.peers_s,
        "idle": split.idle_s,
        "other": split.other_s,
    }
    total = split.total_s or 1.0
    largest = sorted(parts.items(), key=lambda part: -part[1])[:N_PART]
    return ", ".join(f"{name} {percent(value / total)}" for name, value in largest if value / total >= 0.005)
