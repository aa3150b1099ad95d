"""The state of a job in one view: phase, plan, throughput, progress, nodes, memory, fit, proposal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.basics.percents import chance_words
from dlrover_nb.core.client.until import first_steps
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Optimizer
from dlrover_nb.core.structs.plan.deadline import margin_words
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.snapshot import NodePhase, waits_told
from dlrover_nb.core.structs.views.summary import left_of, share_done
from dlrover_nb.widgets import mitigations, units
from dlrover_nb.widgets.blocks import Block, Facts, Paragraph, Table, Tone, View
from dlrover_nb.widgets.charts import CHARTS, breakdown, stragglers
from dlrover_nb.widgets.jobs.always_asked import always_asked_line
from dlrover_nb.widgets.jobs.headline import headline
from dlrover_nb.widgets.jobs.host_wishes import host_blocks
from dlrover_nb.widgets.oom import clock_words, full_in_words, remedy, running_out
from dlrover_nb.widgets.rows.columns import MEMORY, NODES, STATUS
from dlrover_nb.widgets.rows.job_cells import line_of
from dlrover_nb.widgets.rows.job_columns import NOTEBOOK, job_cells
from dlrover_nb.widgets.rows.tables import Tables, one

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dlrover_nb.core.structs.decisions.decisions import Proposal
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.reported import TrainerStatus
    from dlrover_nb.core.structs.training.shards import ShardCounts
    from dlrover_nb.core.structs.views.fit import FitReport
    from dlrover_nb.core.structs.views.snapshot import (
        Evaluation,
        JobSnapshot,
        MemoryLine,
        NodeView,
        SeriesChunk,
    )
    from dlrover_nb.core.structs.views.summary import JobSummary


_MOST_NODES = 24  # of a table in a saved notebook


def jobs_view(jobs: Sequence[JobSummary], others: Sequence[Block] = ()) -> View:
    """Return the list of jobs, with the blocks of those of others below."""
    if not jobs:
        first = Paragraph("No jobs yet. Start one with:", Tone.HINT, ("%dlrover submit quick-start",))
        return View("Jobs", (first, *others))
    head = tuple(column.head for column in NOTEBOOK)
    rows = tuple(tuple(cell.text for cell in job_cells(NOTEBOOK, line_of(job))) for job in jobs)
    table = Table(f"{units.counted(len(jobs), 'job')}, newest first", head, rows, _jobs_note(jobs))
    return View("Jobs", (table, *_silent(jobs), *_failed(jobs), *others))


def _jobs_note(jobs: Sequence[JobSummary]) -> str:
    """Return what words of the list mean that are in it."""
    answer = "Answer: a proposal, or an action against stragglers, waits for your decision."
    past = "(past): known from the history alone."
    waits = any(job.waiting and not job.phase.is_final for job in jobs)
    is_past = any(not job.live and job.phase.is_final for job in jobs)
    return " ".join((*((answer,) if waits else ()), *((past,) if is_past else ())))


def _silent(jobs: Sequence[JobSummary]) -> tuple[Block, ...]:
    silent = [job for job in jobs if not (job.live or job.phase.is_final)]
    return tuple(Paragraph(f"No answer from {job.name}: {job.message or 'reason unknown'}") for job in silent)


def _failed(jobs: Sequence[JobSummary]) -> tuple[Block, ...]:
    """Return why jobs failed, each reason once."""
    names: dict[str, list[str]] = {}
    for job in jobs:
        if job.phase is JobPhase.FAILED and job.message:
            names.setdefault(job.message, []).append(job.name)
    return tuple(Paragraph(f"{', '.join(who)}: {why}", Tone.FAILED) for why, who in names.items())


def status_view(snapshot: JobSnapshot, series: SeriesChunk | None) -> View:
    """Return the state of one job."""
    blocks: list[Block] = [headline(snapshot), *hint(snapshot), *mitigations.hint(snapshot)]
    has_series = series is not None and bool(series.job.get("at_s"))
    has_reports = series is not None and bool(series.node.get("at_s"))
    if has_series and not first_steps(snapshot):
        blocks.append(CHARTS["throughput"].static(snapshot, series))
    blocks += (always_asked_line(snapshot), Facts(summary_facts(snapshot)))
    blocks += mitigations.slow_blocks(snapshot)
    blocks += nodes_blocks(snapshot)
    if any(node.last is not None for node in snapshot.nodes):
        blocks.append(breakdown.static_bars(snapshot, series))
    if has_reports:
        blocks += stragglers_blocks(snapshot, series)
    blocks += memory_blocks(snapshot)
    if has_reports:
        blocks.append(CHARTS["memory"].static(snapshot, series))
    return View(f"Job {snapshot.title}: {snapshot.phase}", tuple(blocks))


def status_tables(snapshot: JobSnapshot) -> Tables:
    """Return the state of a job as data."""
    tables = {"nodes": NODES.table(snapshot.nodes), "memory": MEMORY.table(snapshot.memory)}
    return Tables(one(STATUS, snapshot), tables)


def stragglers_blocks(snapshot: JobSnapshot, series: SeriesChunk | None) -> tuple[Block, ...]:
    """Return the strip of stragglers if there is one now."""
    data = stragglers.columns(snapshot, series)
    if not data.now:
        return ()
    state = () if data.rule else (Paragraph(data.state, Tone.WARNING),)  # else `slow_blocks` names them
    return (*state, CHARTS["stragglers"].static(snapshot, series))


def summary_facts(snapshot: JobSnapshot) -> tuple[tuple[str, str], ...]:
    """Return the head of every view of a job."""
    end_s = snapshot.ended_at_s or snapshot.at_s
    phase = f"{snapshot.phase}{': ' + snapshot.message if snapshot.message else ''}"
    facts = [
        ("phase", phase),
        (
            "as of",
            f"{units.clock(snapshot.at_s)}, {units.duration(end_s - snapshot.started_at_s)} after start",
        ),
        ("plan", plan_words(snapshot)),
        ("decides", f"{snapshot.mode} mode"),
        ("throughput", rate_words(snapshot)),
        ("training", progress_words(snapshot.train)),
        ("loss", f"{snapshot.loss:.4f}" if snapshot.loss is not None else units.MISSING),
        ("fit", fit_words(snapshot.fit, is_over=snapshot.phase.is_final)),
        ("evaluation", evaluation_words(snapshot)),
    ]
    facts[6:6] = _limit_facts(snapshot)
    if words := host_words(snapshot):
        facts.insert(5, ("host", words))
    if snapshot.reported is not None:
        facts.append(("reported", reported_words(snapshot, snapshot.reported)))
    if snapshot.stop is not None and not snapshot.phase.is_final:
        facts.append(("early stop", snapshot.stop.words))
    if snapshot.quota is not None and not snapshot.phase.is_final:
        facts.append(("queue", snapshot.quota.words))
    if snapshot.pins:
        facts.insert(4, ("pinned", str(snapshot.pins)))
    if snapshot.began_from is not None:
        facts.append(("began from", str(snapshot.began_from)))
    if snapshot.restart is not None:
        facts.append(("restarted", f"{units.clock(snapshot.restart.at_s)}: {snapshot.restart.words}"))
    facts += [("damaged", words) for words in filter(None, [snapshot.damage])]
    if snapshot.n_dropped_message:
        facts.append(("dropped", f"{snapshot.n_dropped_message:,} messages could not be understood"))
    if snapshot.n_refused_client:
        facts.append(("refused", f"{snapshot.n_refused_client:,} connections without the job's key"))
    return tuple(facts)


def _limit_facts(snapshot: JobSnapshot) -> list[tuple[str, str]]:
    """Return what is left of the total budget and of the time until the deadline, where there are any."""
    budget = [] if snapshot.budget is None else [("budget", budget_words(snapshot))]
    has_deadline = snapshot.spec.due_s(snapshot.started_at_s) is not None
    return budget + ([("deadline", deadline_words(snapshot))] if has_deadline else [])


def reported_words(snapshot: JobSnapshot, status: TrainerStatus) -> str:
    """Return what the program itself reported of its progress, and how long ago."""
    left_s = None if status.remaining_s is None else left_of(snapshot)
    parts = (
        "" if status.percentage is None else f"{status.percentage} % done",
        "" if left_s is None else f"{units.duration(left_s)} to go",
        ", ".join(f"{name} {value}" for name, value in status.metrics),
    )
    age_s = max((snapshot.ended_at_s or snapshot.at_s) - status.at_s, 0.0)
    return f"{'; '.join(filter(None, parts)) or 'no values'} ({units.duration(age_s)} ago)"


def host_words(snapshot: JobSnapshot) -> str:
    """Say what other work on its hosts takes from a running job; empty where that is not felt."""
    return "" if snapshot.host is None or snapshot.phase.is_final else snapshot.host.words


def deadline_words(snapshot: JobSnapshot) -> str:
    """Say until when the job should be done, and how probable that is; of an ended job, whether it was."""
    due_s = snapshot.spec.due_s(snapshot.started_at_s) or snapshot.started_at_s
    if snapshot.phase.is_final:
        off_s = due_s - (snapshot.ended_at_s or snapshot.at_s)
        return f"{units.clock(due_s)}; the job ended {margin_words(off_s)}"
    if snapshot.deadline is None:
        return f"{units.clock(due_s)}; nothing is known of the job's speed yet"
    return f"{units.clock(due_s)}, {snapshot.deadline.words}"


def budget_words(snapshot: JobSnapshot) -> str:
    """Say what is spent of the total budget, and what the rest buys; of an ended job, what it spent."""
    if snapshot.budget is None:
        return "no limit"
    words = snapshot.budget.spent_words if snapshot.phase.is_final else snapshot.budget.words
    return f"{words}{snapshot.spec.prices.note}"


def rate_words(snapshot: JobSnapshot) -> str:
    """Describe the present throughput; of an ended job, its mean over the run."""
    if not snapshot.phase.is_final:
        return units.rate(snapshot.samples_per_s)
    run_s = (snapshot.ended_at_s or snapshot.at_s) - snapshot.started_at_s
    n_before = 0 if snapshot.began_from is None else snapshot.began_from.n_sample
    n_done = snapshot.train.n_sample_done - n_before
    return f"{units.rate(n_done / run_s)} on average" if run_s > 0 and n_done > 0 else units.MISSING


def quality_words(snapshot: JobSnapshot) -> str:
    """Return how good the model is, in few words: on held-out rows, else by its loss; empty: not known."""
    evaluation = snapshot.evaluation or next((each.evaluation for each in snapshot.rounds[-1:]), None)
    if evaluation is not None:
        return f"AUC {evaluation.auc:.4f}"
    if snapshot.reported is not None and snapshot.reported.metrics:
        return " ".join(map(str, snapshot.reported.metrics[0]))
    return "" if snapshot.loss is None else f"loss {units.number(snapshot.loss)}"


def plan_words(snapshot: JobSnapshot) -> str:
    """Describe the running plan and, where different, the desired one; of an ended job, the last one."""
    if snapshot.phase.is_final:
        return f"{snapshot.target} (at the end)"
    return change_words(snapshot, str)


def change_words(snapshot: JobSnapshot, name: Callable[[ResourcePlan], str]) -> str:
    """Tell the plan that runs, or ran until now, apart from the wanted one; `name` makes words of a plan."""
    ran, wanted = snapshot.ran, name(snapshot.target)
    if ran is None:
        return f"starting with {wanted}"
    if ran != snapshot.target:
        return f"{name(ran)} until now, changing to {wanted}"
    if snapshot.running is None and snapshot.phase is JobPhase.RESCALING:
        return f"{wanted}, changing back to it"
    return wanted


def progress_words(counts: ShardCounts) -> str:
    """Describe the progress of training, in samples and in shards."""
    return (
        f"{units.percent(share_done(counts), 1)}: "
        f"{counts.n_sample_done:,} of {counts.n_sample_total:,} samples; "
        f"shards {counts.done:,} done, {counts.doing:,} doing, {counts.todo:,} to do"
        + f", {counts.quarantined:,} in quarantine" * (counts.quarantined > 0)
        + f", {counts.skipped:,} skipped" * (counts.skipped > 0)
    )


def fit_words(fit: FitReport | None, *, is_over: bool = False) -> str:
    """Describe the data behind the fit; `is_over`: no more will come."""
    if fit is None:
        return "none: the job had no steady samples" if is_over else "none yet: no steady samples"
    if not fit.n_sample:
        return fit.note
    return (
        f"{fit.n_sample} steady samples of {fit.n_plan} plan{'s' * (fit.n_plan != 1)}, "
        f"mean error {units.percent(fit.mape, 1)}. {fit.note}"
    )


GUESSING = 0.5  # AUC of scores that say nothing of the label
HARDLY_BETTER = 0.05  # than guessing


def evaluation_words(snapshot: JobSnapshot) -> str:
    """Describe the model's quality on held-out rows."""
    evaluation, nothing = snapshot.evaluation, "none" if snapshot.phase.is_final else "not yet"
    if evaluation is not None:
        return f"{evaluation}{_doubt(snapshot, evaluation)}"
    return "".join(f"after pass {each.n_pass}: {each.evaluation}" for each in snapshot.rounds[-1:]) or nothing


def _doubt(snapshot: JobSnapshot, evaluation: Evaluation) -> str:
    """Return a warning of a trained model that says next to nothing of the label; empty: none is due."""
    if not abs(evaluation.auc - GUESSING) < HARDLY_BETTER:
        return ""
    own = snapshot.spec.foreign is None and snapshot.spec.model.optimizer == Optimizer.ADAGRAD
    what = "more epochs or --optimizer adam" if own else "more epochs"
    return f": hardly better than guessing (AUC 0.5); {what} may help, unless no column tells the label"


def hint(snapshot: JobSnapshot) -> tuple[Block, ...]:
    """Return the user's possible actions, with the exact commands."""
    name, proposal = snapshot.spec.name, snapshot.open_proposal
    if snapshot.undo_cancels:
        words = f"{snapshot.under_way} is being applied. To go back at once:"
        return (Paragraph(words, Tone.HINT, (f"%dlrover undo {name} {snapshot.under_way}",)),)
    if proposal is None:
        return ()
    return (Paragraph(f"Answer {proposal.id} with one of:", Tone.HINT, commands(name, proposal)),)


def commands(job: str, proposal: Proposal) -> tuple[str, ...]:
    """Return the commands that answer a proposal."""
    plan = proposal.candidate.plan
    counts = f"--workers {plan.worker.count} --ps {plan.ps.count}"
    cpus = f"--worker-cpu {plan.worker.cpu:g} --ps-cpu {plan.ps.cpu:g}"
    memory = "".join(
        f" --{role}-memory {plan.role(role).memory_mib}"
        for role in Role
        if plan.role(role).memory_mib != proposal.baseline.plan.role(role).memory_mib
    )
    return (
        f"%dlrover apply {job} {proposal.id}",
        f'%dlrover reject {job} {proposal.id} --why "..."',
        f"%dlrover apply --instead {job} {proposal.id} {counts} {cpus}{memory}",
    )


_NODE_COLUMNS = ("node", "phase", "cpu used / limit", "memory", "of limit", "limits are", "network", "step")


def nodes_blocks(snapshot: JobSnapshot) -> tuple[Block, ...]:
    """Return the nodes."""
    nodes = snapshot.nodes
    if not nodes:
        return (Paragraph("No nodes: the job has ended." if snapshot.phase.is_final else "No nodes yet."),)
    shown = _outstanding(nodes)
    n_more = len(nodes) - len(shown)
    more = f"{n_more} more nodes, ready and with less memory in use, are not shown." if n_more else ""
    note = " ".join(filter(None, (more, _limits_note(nodes))))
    waits = (Paragraph(f"{line[0].upper()}{line[1:]}", Tone.WARNING) for line in waits_told(nodes))
    head: tuple[str, ...] = _NODE_COLUMNS
    rows = [_node_row(n) for n in shown]
    if any(n.last is not None and n.last.gpu_busy is not None for n in nodes):
        head, rows = (*head, "GPU"), [(*row, _gpu(n)) for row, n in zip(rows, shown, strict=True)]
    table = Table("Nodes", head, tuple(rows), note)
    return (table, *waits, *host_blocks(shown))


def _outstanding(nodes: Sequence[NodeView]) -> tuple[NodeView, ...]:
    """Return all nodes; of many, those that are not ready, then those whose memory is fullest."""
    if len(nodes) <= _MOST_NODES:
        return tuple(nodes)
    used = {n.id: n.last.memory_mib / n.memory_mib if n.last else 0.0 for n in nodes}
    first = sorted(nodes, key=lambda n: (n.phase is NodePhase.READY, -used[n.id]))[:_MOST_NODES]
    names = {n.id for n in first}
    return tuple(n for n in nodes if n.id in names)


def _node_row(node: NodeView) -> tuple[str, ...]:
    last = node.last
    return (
        node.id,
        node.state,
        f"{units.cores(last.cpu_cores) if last else units.MISSING} / {node.cpu:g}",
        units.memory(last.memory_mib if last else None),
        units.percent(last.memory_mib / node.memory_mib if last else None),
        _limits(node),
        _network(node),
        units.duration(last.iter_s if last else None),
    )


def _gpu(node: NodeView) -> str:
    if node.last is None or node.last.gpu_busy is None:
        return units.MISSING
    return f"{units.percent(node.last.gpu_busy)} busy, {units.memory(node.last.gpu_memory_mib)}"


def _limits(node: NodeView) -> str:
    if node.phase is NodePhase.PENDING:  # it does not run yet
        return units.MISSING
    if node.cpu_enforced and node.memory_enforced:
        return "enforced"
    if node.cpu_enforced or node.memory_enforced:
        return f"{'memory' if node.cpu_enforced else 'cpu'} advisory"
    return "advisory"


def _network(node: NodeView) -> str:
    if node.last is None:
        return units.MISSING
    n_byte = node.last.n_byte_sent + node.last.n_byte_received
    by = f" by {node.last.carrier}" if node.last.carrier else ""
    return f"{units.number(n_byte / node.last.window_s / 1e6)} MB/s{by}"


def _limits_note(nodes: Sequence[NodeView]) -> str:
    here = (node for node in nodes if node.phase is not NodePhase.PENDING)
    if all(node.cpu_enforced and node.memory_enforced for node in here):
        return ""
    return "Advisory: this machine does not hold the node to its limit, so it may use more."


def memory_blocks(snapshot: JobSnapshot) -> tuple[Block, ...]:
    """Return use, growth and limit of memory per role, with a warning where a limit will be reached."""
    if not snapshot.memory:
        return ()
    warnings = (Paragraph(clock_words(m), Tone.WARNING) for m in running_out(snapshot))
    helps = remedy(snapshot)
    hints = (Paragraph(helps, Tone.HINT),) if helps else ()
    return (memory_table(snapshot.memory), *warnings, *hints)


def memory_table(lines: Sequence[MemoryLine]) -> Table:
    """Return use, growth and limit of memory per role."""
    head = ("role", "largest node", "limit", "law", "at the end", "90 % band", "full in", "chance")
    note = "Chance that a node runs out of memory before the job ends."
    return Table("Memory", head, tuple(map(_memory_row, lines)), note)


def _memory_row(m: MemoryLine) -> tuple[str, ...]:
    has_range = m.at_end_low_mib is not None and m.at_end_high_mib is not None
    return (
        str(m.role),
        units.memory(m.now_mib),
        units.memory(m.limit_mib),
        m.law,
        units.memory(m.at_end_mib),
        f"{units.memory(m.at_end_low_mib)} to {units.memory(m.at_end_high_mib)}"
        if has_range
        else units.MISSING,
        full_in_words(m),
        units.MISSING if m.oom_probability is None else chance_words(m.oom_probability),
    )


def shards_table(snapshot: JobSnapshot) -> Table:
    """Return the counts of all shards by state."""
    rows = (_shards_row("train", snapshot.train), _shards_row("evaluate", snapshot.evaluate))
    head = (
        "purpose",
        "shards",
        "done",
        "doing",
        "to do",
        "in quarantine",
        "skipped",
        "samples done",
        "samples",
        "returned",
        "late reports",
    )
    note = (
        "Returned: their worker died or left, and another one trains them. "
        "In quarantine: they crashed their workers; retry or skip them with %dlrover apply."
    )
    return Table("Accounting of shards", head, rows, note)


def _shards_row(name: str, c: ShardCounts) -> tuple[str, ...]:
    numbers = (
        *(c.total, c.done, c.doing, c.todo, c.quarantined, c.skipped),
        *(c.n_sample_done, c.n_sample_total, c.returned, c.refused),
    )
    return (name, *(f"{n:,}" for n in numbers))
