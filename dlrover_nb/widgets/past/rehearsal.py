"""A rehearsal as a view: what the staleness of more workers costs in AUC and loss, with its uncertainty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.basics.numerics import stdtrit
from dlrover_nb.core.rehearsal.curves import points_by_workers
from dlrover_nb.core.rehearsal.ways import WayName
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Facts, Lead, Paragraph, StaticChart, Table, View
from dlrover_nb.widgets.svg import svg_drawing
from dlrover_nb.widgets.svg.marks import Band, Drawing, Line, Orientation, Plot, Points, Rule
from dlrover_nb.widgets.svg.palette import CYCLE, DASHES

if TYPE_CHECKING:
    from dlrover_nb.core.rehearsal.rehearsal import Rehearsal

SHAPES = ("circle", "square", "diamond")
N_STEP = 40  # of a drawn curve
NOTE = (
    "Changes are against one worker with the same seeds, rows and first parameters, with 90 % intervals over "
    "seeds. Staleness is the mean number of updates by other workers that a gradient misses."
)
SHORT = (
    "These are short runs from untrained parameters, where a delay costs most: it counts for a large part of "
    "so few updates. A job with more rows usually loses less."
)
OWN_ROWS = (
    "The job holds out no rows, so the last tenth of its training rows is scored here, and not trained."
)
FEW_PER_WORKER = (
    "With {n} workers each has fewer than {least} updates of its own here; use more rows to trust that."
)
DIVERGED = "Runs with {n} workers diverged; they are left out. A smaller learning rate may help."
LEAST_UPDATES = 4  # of each worker: below it nearly all gradients are of the first parameters


@dataclass(frozen=True, slots=True)
class PointRow:
    """The change at one number of workers against one worker, with ends of 90 % intervals."""

    way: str
    n_worker: int
    age: float
    auc: float
    auc_low: float
    auc_high: float
    loss: float
    loss_low: float
    loss_high: float
    n_seed: int
    n_update: int
    base_auc: float
    base_loss: float

    @property
    def is_worse(self) -> bool:
        """Whether the AUC has surely fallen."""
        return self.auc_high < 0


def point_rows(result: Rehearsal) -> tuple[PointRow, ...]:
    """Return the points of all ways, by way and number of workers."""
    rows = []
    for way, curve in zip(result.settings.ways, result.curves, strict=True):
        for n_worker, point in points_by_workers(result.runs, way).items():
            wide = float(stdtrit(point.n_seed - 1, 0.95))
            auc, loss = wide * point.auc_error, wide * point.loss_error
            rows.append(
                PointRow(
                    way=str(way),
                    n_worker=n_worker,
                    age=point.age,
                    auc=point.auc,
                    auc_low=point.auc - auc,
                    auc_high=point.auc + auc,
                    loss=point.loss,
                    loss_low=point.loss - loss,
                    loss_high=point.loss + loss,
                    n_seed=point.n_seed,
                    n_update=_n_update(result, way, n_worker),
                    base_auc=curve.base_auc,
                    base_loss=curve.base_loss,
                )
            )
    return tuple(rows)


def rehearsal_view(result: Rehearsal) -> View:
    """Return the result of a rehearsal."""
    rows = point_rows(result)
    blocks: list[Block] = [Lead(" ".join(_sentences(result, rows)))]
    blocks.append(Facts(_facts(result)))
    blocks.append(StaticChart(svg_drawing.draw(marks(result)), _table(rows)))
    blocks += [Paragraph(text) for text in _notes(result, rows)]
    return View(f"What staleness costs {result.job}", tuple(blocks))


def marks(result: Rehearsal) -> Drawing:
    """Describe the pictures: AUC over the number of workers, and AUC and loss over the staleness."""
    desc = "Change of held-out AUC and loss as gradients get older, with 90 % intervals."
    rows = point_rows(result)
    return Drawing(
        "What staleness costs",
        desc,
        (_by_workers(rows), _by_age(result, rows, "auc"), _by_age(result, rows, "loss")),
    )


def _sentences(result: Rehearsal, rows: tuple[PointRow, ...]) -> list[str]:
    """Say for each way up to where the AUC holds, and what the most workers cost."""
    return [_sentence(way, [row for row in rows if row.way == way]) for way in map(str, result.settings.ways)]


def _sentence(way: str, rows: list[PointRow]) -> str:
    last, worse = rows[-1], [row for row in rows if row.is_worse]
    if not worse:
        return (
            f"With {way}, the AUC of up to {last.n_worker} workers does not surely differ from that of one: "
            f"{_auc(last)} with {last.n_worker}."
        )
    first = worse[0]
    text = f"With {way}, {units.counted(first.n_worker, 'worker')} cost AUC: {_auc(first)}"
    return text + (f"; {last.n_worker} change it by {_auc(last)}." if last is not first else ".")


def _auc(row: PointRow) -> str:
    return f"{_signed(row.auc)} ({_signed(row.auc_low)} to {_signed(row.auc_high)})"


def _signed(value: float) -> str:
    return f"{value:+.4f}"


def _facts(result: Rehearsal) -> tuple[tuple[str, str], ...]:
    curve = result.curves[0]
    lag = "computes while its gradients travel" if result.overlap else "waits for its exchange"
    n_epoch = result.settings.n_epoch
    passes = "1 pass" if n_epoch == 1 else f"{n_epoch:,} passes"
    training = f"{curve.optimizer}, learning rate {curve.learning_rate:g}, batch {curve.batch_size:,}"
    return (
        ("rows", f"{result.n_row:,} trained in {passes}, {result.n_held_out:,} scored"),
        ("training", f"{training}; {result.n_update:,} updates"),
        ("one worker", f"AUC {curve.base_auc:.4f}, loss {curve.base_loss:.4f}"),
        ("each worker", lag),
        ("seeds", f"{result.n_seed}"),
        ("cost", f"{result.cpu_s:,.0f} s of a core"),
    )


def _table(rows: tuple[PointRow, ...]) -> Table:
    head = ("way", "workers", "staleness, updates", "AUC change", "90 %", "loss change", "90 %")
    cells = tuple(
        (
            row.way,
            str(row.n_worker),
            units.number(row.age),
            _signed(row.auc),
            f"{_signed(row.auc_low)} to {_signed(row.auc_high)}",
            _signed(row.loss),
            f"{_signed(row.loss_low)} to {_signed(row.loss_high)}",
        )
        for row in rows
    )
    return Table("Against one worker", head, cells, NOTE)


def _notes(result: Rehearsal, rows: tuple[PointRow, ...]) -> list[str]:
    notes = [SHORT]
    if not result.holds_out_own:
        notes.append(OWN_ROWS)
    n_batch = result.n_update
    thin = [row.n_worker for row in rows if row.way != WayName.GBA and n_batch < LEAST_UPDATES * row.n_worker]
    if thin:
        n = f"{min(thin)}" if len({*thin}) == 1 else f"{min(thin)} or more"
        notes.append(FEW_PER_WORKER.format(n=n, least=LEAST_UPDATES))
    if diverged := sorted({run.delay.n_worker for run in result.runs if run.has_diverged}):
        notes.append(DIVERGED.format(n=and_list(diverged)))
    if result.n_seed < result.settings.n_seed:
        notes.append(f"It was interrupted after {result.n_seed} of {result.settings.n_seed} seeds.")
    return notes


def _n_update(result: Rehearsal, way: WayName, n_worker: int) -> int:
    return next(r.n_update for r in result.runs if r.way == way and r.delay.n_worker == n_worker)


def _by_workers(rows: tuple[PointRow, ...]) -> Plot:
    layers: list[Rule | Points] = [Rule(0.0, "one worker", Orientation.HORIZONTAL)]
    layers += [
        Points(
            tuple(float(row.n_worker) for row in own),
            tuple(row.auc for row in own),
            CYCLE[i % len(CYCLE)],
            way,
            SHAPES[i % len(SHAPES)],
            low=tuple(row.auc_low for row in own),
            high=tuple(row.auc_high for row in own),
            titles=tuple(f"{row.n_worker} workers, {_auc(row)}" for row in own),
        )
        for i, (way, own) in enumerate(_by_way(rows).items())
    ]
    desc = "Change of the held-out AUC against one worker, over the number of workers, with 90 % intervals."
    return Plot(
        "AUC by workers",
        desc,
        "workers",
        "change of AUC",
        tuple(layers),
        x_ticks=tuple(sorted({float(row.n_worker) for row in rows})),
        y_from_zero=False,
        height=240,
    )


def _by_age(result: Rehearsal, rows: tuple[PointRow, ...], measure: str) -> Plot:
    """Draw points and the fitted curve with its band, over the staleness."""
    from dlrover_nb.core.staleness.curves import FittedCurve  # noqa: PLC0415 - it loads scipy

    layers: list[Rule | Band | Line | Points] = [Rule(0.0, "", Orientation.HORIZONTAL)]
    for i, (curve, own) in enumerate(zip(result.curves, _by_way(rows).values(), strict=True)):
        ages = np.linspace(0.0, max(row.age for row in own), N_STEP)
        fitted = FittedCurve(curve)
        changes = fitted.auc(ages) if measure == "auc" else fitted.loss(ages)
        x, color = tuple(ages.tolist()), CYCLE[i % len(CYCLE)]
        layers.append(Band(x, tuple(changes.low.tolist()), tuple(changes.high.tolist()), color))
        layers.append(Line(x, tuple(changes.mean.tolist()), color, curve.way, DASHES[i % len(DASHES)]))
        layers.append(
            Points(
                tuple(row.age for row in own),
                tuple(getattr(row, measure) for row in own),
                color,
                shape=SHAPES[i % len(SHAPES)],
                low=tuple(getattr(row, f"{measure}_low") for row in own),
                high=tuple(getattr(row, f"{measure}_high") for row in own),
                titles=tuple(f"{row.n_worker} workers" for row in own),
            )
        )
    name = "AUC" if measure == "auc" else "loss"
    desc = f"Change of the held-out {name} over the mean number of updates by others that a gradient misses."
    return Plot(
        f"{name[0].upper()}{name[1:]} by staleness",
        desc,
        "updates by other workers that a gradient misses",
        f"change of {name}",
        tuple(layers),
        y_from_zero=False,
        height=240,
    )


def _by_way(rows: tuple[PointRow, ...]) -> dict[str, list[PointRow]]:
    return {way: [row for row in rows if row.way == way] for way in dict.fromkeys(row.way for row in rows)}
