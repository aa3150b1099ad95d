"""A job in a terminal: one renderable made from a snapshot, redrawn by whoever watches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dlrover_nb.core.structs.decisions import ProposalKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from dlrover_nb.core.structs.decisions import Proposal
    from dlrover_nb.core.structs.snapshot import JobSnapshot, NodeView

BARS = "▁▂▃▄▅▆▇█"
N_STORY = 6


def render(snapshot: JobSnapshot, rates: Sequence[float] = ()) -> RenderableType:
    """Draw the job; `rates` are recent samples per second, oldest first."""
    parts: list[RenderableType] = [_headline(snapshot), _progress(snapshot), _throughput(snapshot, rates)]
    parts.append(_nodes(snapshot))
    if snapshot.fit is not None:
        parts.append(Text(f"model  {snapshot.fit.note}", style="dim"))
    if (proposal := snapshot.open_proposal) is not None:
        parts.append(proposal_panel(proposal))
    parts.append(Text("\n".join(snapshot.story[-N_STORY:]), style="dim", no_wrap=True, overflow="ellipsis"))
    return Panel(Group(*parts), title=f"dlrover-nb  {snapshot.spec.name}", title_align="left")


def proposal_panel(proposal: Proposal) -> RenderableType:
    """Draw a proposal: what changes, what it should bring, why."""
    candidate, kind = proposal.candidate, proposal.kind
    band = candidate.prediction
    learn = " to learn from" if kind is ProposalKind.EXPLORE else ""
    text = (
        f"{proposal.baseline.plan.short}  ->  {candidate.plan.short}\n"
        f"predicted {band.samples_per_s:,.0f} samples/s (90 % band {band.low:,.0f} to {band.high:,.0f}), "
        f"{candidate.cost_per_hour:.3f} per hour\n{proposal.why}"
    )
    return Panel(Text(text), title=f"proposal {proposal.id}: {kind}{learn}", title_align="left")


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Return the last `width` values as bars from zero to their largest."""
    recent = list(values)[-width:]
    top = max(recent, default=0.0)
    if top <= 0:
        return ""
    return "".join(BARS[min(int(v / top * len(BARS)), len(BARS) - 1)] for v in recent)


def _headline(snapshot: JobSnapshot) -> Text:
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
    row = Table.grid(padding=(0, 1))
    row.add_row(
        ProgressBar(total=max(train.n_sample_total, 1), completed=train.n_sample_done, width=40),
        f"{train.n_sample_done:,} of {train.n_sample_total:,} samples, "
        f"shards {train.done} done, {train.doing} doing, {train.todo} to do",
    )
    return row


def _throughput(snapshot: JobSnapshot, rates: Sequence[float]) -> Text:
    loss = "" if snapshot.loss is None else f"  loss {snapshot.loss:.4f}"
    return Text(f"{snapshot.samples_per_s:>8,.0f} samples/s {sparkline(rates)}{loss}")


def _nodes(snapshot: JobSnapshot) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("node", "state", "cpu used / may", "memory used / may", "iteration", "of it"):
        table.add_column(heading, no_wrap=True)
    for node in snapshot.nodes:
        if node.phase != "gone":
            table.add_row(*_node_cells(node))
    return table


def _node_cells(node: NodeView) -> tuple[str, ...]:
    may = f"{node.cpu:g}{'' if node.cpu_enforced else ' (advisory)'}"
    if (last := node.last) is None:
        return (node.id, node.phase, f"- / {may}", f"- / {node.memory_mib} MiB", "", "")
    parts = {
        "data": last.split.data_s,
        "PS wait": last.split.lookup_s if node.role == "worker" else 0.0,
        "lookup": last.split.lookup_s if node.role == "ps" else 0.0,
        "compute": last.split.compute_s,
        "update": last.split.update_s,
        "idle": last.split.idle_s,
    }
    total = last.split.total_s or 1.0
    split = ", ".join(
        f"{name} {value / total:.0%}" for name, value in parts.items() if value / total >= 0.005
    )
    return (
        node.id,
        node.phase,
        f"{last.cpu_cores:.2f} / {may}",
        f"{last.memory_mib:.0f} / {node.memory_mib} MiB",
        f"{last.iter_s * 1e3:.1f} ms",
        split,
    )
