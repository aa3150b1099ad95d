"""The parameters of one PS: look up, update, save, load, and migrate.

Migration of rows while training goes on: `begin_move` marks all rows of some buckets as pending,
`take_pending` returns copies and clears the marks, and an update marks its rows again. So when nothing is
pending, the receiver has exactly the same rows; `drop` then frees them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import CheckpointError, WireError
from dlrover_nb.core.runtime.kernels import kernel
from dlrover_nb.core.runtime.kernels.rates import Rates, scaled
from dlrover_nb.core.runtime.kernels.rule import Rule
from dlrover_nb.core.runtime.store.cut import Cut
from dlrover_nb.core.runtime.store.dense import DenseSlice
from dlrover_nb.core.runtime.store.gradients import check_finite, check_usable
from dlrover_nb.core.runtime.store.partition import Buckets, Floats, Ids, StorePart
from dlrover_nb.core.runtime.store.pending import PendingRows
from dlrover_nb.core.runtime.store.rows import RowTable
from dlrover_nb.core.runtime.store.served import ServedRows
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.kernels.plain_server import PlainServer
    from dlrover_nb.core.structs.job.job import ModelSpec

_CHUNK = 1 << 15  # rows taken from a part at a time: it may be a file larger than free memory
_DROP = 1 << 13  # rows scanned in one step of a drop
_LOOK_EVERY_S = 0.01


def _nothing() -> None:
    """Do nothing between two pieces of long work."""


class ParameterStore:
    """Parameters of PS `index` of `n_ps`.

    Parameters
    ----------
    model
        Widths, seed, optimizer, and how ids map to rows.
    n_table_row
        Rows of the whole table; unused where ids are hashed.
    dense_length
        Elements of the whole flat dense vector.
    index, n_ps
        Which slice of the dense vector this store holds.

    Attributes
    ----------
    served
        Rows that were pulled and pushed, by bucket.
    dense_factors
        Factors of the learning rate of the dense part, by the class of a gradient's age; empty: they do not
        depend on it.
    """

    def __init__(
        self, model: ModelSpec, n_table_row: int, dense_length: int, *, index: int = 0, n_ps: int = 1
    ) -> None:
        self._kernel, self._rule = kernel(), Rule.of(model)
        self._rates = Rates(self._rule)
        self._server = self._kernel.plain_server(self._rule)
        self._rows = RowTable(model, self._rule, n_table_row, self._kernel)
        self._dense = DenseSlice(self._rule, dense_length, index, n_ps, model.averages)
        self._pending = PendingRows(self._rows)
        self._cut_dense = np.empty((0, 0), np.float32)  # kept: new memory costs more than the copy
        self.served = ServedRows()
        self.dense_factors: tuple[float, ...] = ()

    def scale_rate(self, factor: float) -> None:
        """Take all steps from now on with `factor` times the model's learning rate."""
        rule = self._rule if factor == 1.0 else scaled(self._rule, factor)
        self._rates = self._rates.of(rule)
        self._server = self._kernel.plain_server(rule)

    @property
    def n_held(self) -> NDArray[np.int64]:
        """Number of rows of each bucket, a copy."""
        return self._rows.n_held.copy()

    @property
    def n_pending(self) -> int:
        """Number of rows that are to be sent."""
        return self._pending.n

    @property
    def n_row(self) -> int:
        """Number of rows."""
        return self._rows.n

    @property
    def n_byte(self) -> int:
        """Bytes allocated: parameters, optimizer state, ids and their map."""
        return self._rows.n_byte + self._dense.n_byte + self._cut_dense.nbytes

    @property
    def dense(self) -> Floats:
        """A copy of the dense slice."""
        return self.read_dense(np.empty_like(self._dense.table[0]))

    @property
    def answer_shape(self) -> tuple[int, int]:
        """Numbers of one row, and of the dense slice, in an answer to a worker."""
        return self._rows.width, self._dense.table.shape[1]

    def new_answer(self, n: int, *, is_copied: bool) -> tuple[Floats, Floats]:
        """Return memory for an answer with `n` rows: for rows, and for the dense slice.

        `is_copied`: the caller copies it before anything changes, so the dense slice is the one of the store.
        """
        width, n_dense = self.answer_shape
        dense = self._dense.table[0] if is_copied else np.empty(n_dense, np.float32)
        return np.empty((n, width), np.float32), dense

    def read_dense(self, out: Floats) -> Floats:
        """Write the values of the dense slice into `out`, and return it."""
        if not np.may_share_memory(out, self._dense.table[0]):
            np.copyto(out, self._dense.table[0])
        return out

    @property
    def n_average(self) -> int:
        """Last elements of the dense slice that are running averages."""
        return self._dense.n_average

    def init_dense(self, values: Floats) -> bool:
        """Initialize the dense slice with `values` unless it has values; return whether it did."""
        if values.shape != self._dense.table[0].shape:
            raise WireError(f"expected a dense slice of {self._dense.table[0].shape}, got {values.shape}")
        return self._dense.init(values)

    def pull(self, ids: Ids, out: Floats | None = None) -> Floats:
        """Return the values of rows, float32 [n, width]; no row is created.

        `out` is where to write them, packed; None: into new memory.
        """
        self.served.count(ids)
        values = np.empty((len(ids), self._rows.width), np.float32) if out is None else out
        self._rows.gather(ids, values)
        return values

    def push(self, ids: Ids, gradients: Floats, rate: float = 1.0) -> None:
        """Apply one step of the optimizer to distinct rows, with `rate` times the learning rate."""
        self._check_gradients(ids, gradients)
        self._rows.check_distinct(ids)
        self.served.count(ids)
        slots = self._rows.find_or_create(ids)
        step = self._rates.step(rate)
        self._rows.save(slots)
        self._kernel.update_rows(self._rows.table, slots, gradients, *step)
        self._pending.mark(ids, slots)

    def plain_server(self, epoch: int) -> PlainServer | None:
        """Return what serves plain requests of an epoch; None: they are for `push` and `pull`.

        It may be used until the next change; call `settle` then.
        """
        if self._server is None or self._rows.is_held_up or not self._dense.ready:
            return None
        parameters = self._server.parameters
        self._rows.describe(parameters)
        self._pending.describe(parameters)
        self._dense.describe(parameters)
        self.served.describe(parameters)
        self._server.begin(epoch, self._rates.ahead())
        self._server.step_by_age(self._rates.table(self.dense_factors) if self.dense_factors else None)
        return self._server

    def exchange(
        self,
        epoch: int,
        pushed: tuple[Ids, Floats, Floats],
        wanted: Ids,
        out: tuple[Floats, Floats],
        *,
        age_class: int = 0,
    ) -> tuple[float, float] | None:
        """Push rows and the dense slice, then read both, in one call of a kernel: `PlainServer.exchange`.

        The dense step is that of `dense_factors` for a class of age. None: nothing was done, as the single
        methods have to do it.
        """
        ids, gradients, dense = pushed
        width, n_dense = self.answer_shape
        fits = gradients.shape == (len(ids), width) or not (len(ids) or gradients.size)
        if not fits or len(dense) not in (0, n_dense) or (server := self.plain_server(epoch)) is None:
            return None
        took_s = server.exchange(pushed, wanted, out, age_class=age_class)
        self.settle(server)
        return took_s

    def settle(self, server: PlainServer) -> None:
        """Take over what was served."""
        self._rates.made_steps(server.parameters.n_step)
        self._rows.take_over(server.parameters.n_row)
        self._pending.n = server.parameters.n_pending

    def create_rows(self, ids: Ids) -> None:
        """Create those of distinct rows that are new."""
        self._rows.check_distinct(ids)
        self._rows.find_or_create(ids)

    def push_dense(self, gradient: Floats, rate: float = 1.0) -> None:
        """Apply one step of the optimizer to the dense slice, with `rate` times the learning rate.

        For elements that are averages `gradient` has the shares of the batch.
        """
        self._check_dense(gradient)
        n = self._dense.n_trained
        self._kernel.update_dense(self._dense.table[:, :n], gradient[:n], *self._rates.step(rate))
        self._dense.average(gradient[n:])

    def check_push(self, ids: Ids, gradients: Floats, dense: Floats) -> None:
        """Raise `WireError` unless these gradients can be applied."""
        self._rows.check(ids)
        self._rows.check_distinct(ids)
        self._check_gradients(ids, gradients)
        self._check_dense(dense)
        self.check_usable(gradients, dense)

    def check_usable(self, gradients: Floats, dense: Floats) -> None:
        """Raise `WireError` for gradients and averages that no worker may send."""
        n = self._dense.n_trained
        check_usable(gradients, dense[:n])
        check_finite(dense[n:])

    def is_finite(self, between: Callable[[], None] = _nothing) -> bool:
        """Whether all parameters and their optimizer state are; `between` is called every few MiB."""
        rows = self._rows.table[: self._rows.n]
        for chunk in _chunks(len(rows)):
            if not np.isfinite(rows[chunk]).all():
                return False
            between()
        return bool(np.isfinite(self._dense.table).all())

    def export(self) -> StorePart:
        """Return all parameters; the arrays are views, valid until the next change."""
        rows, dense = self._rows, self._dense
        n_dense = dense.table.shape[1] if dense.ready else 0
        return StorePart(
            rows.ids[: rows.n], rows.table[: rows.n], dense.range.start, dense.table[:, :n_dense]
        )

    def cut(self, *, is_awaited: bool = False) -> Cut:
        """Return all parameters as they are now, to be copied by another thread; see `Cut`.

        Rows that a drop in steps has not freed yet are left out, and none is freed until all are copied.
        One at a time: one that was made before must be copied or stopped.
        """
        part = self.export()
        if self._cut_dense.shape != part.dense.shape:
            self._cut_dense = np.empty_like(part.dense)
        np.copyto(self._cut_dense, part.dense)
        whole, changed = replace(part, dense=self._cut_dense), self._rows.take_changed()
        gone, n_row = self._rows.going
        self._rows.cut = cut = Cut(whole, changed, is_awaited=is_awaited, gone=gone, n_row=n_row)
        return cut

    def load(
        self, part: StorePart, owned: Buckets, between: Callable[[], None] = _nothing, *, n_other: int = 0
    ) -> None:
        """Take from `part`, of any layout, the rows of `owned` buckets and the overlap of the dense slice.

        `between` is called every few MiB: a part may be larger than free memory. The first `n_other` rows of
        this store are of other parts, so none of them may come again; later ones are replaced.

        Raises
        ------
        CheckpointError
            When it is of another table or optimizer, repeats a row, or has counts of steps that are none. Its
            first rows may have been taken.
        """
        self._check_rows(part, between)
        is_loaded = np.zeros(self._rows.n + len(part.ids), np.bool_)  # by slot: a byte for each row
        is_loaded[:n_other] = True
        for chunk in _chunks(len(part.ids)):
            ids, slots = self._take_rows(part, chunk, owned)
            if is_loaded[slots].any():
                raise CheckpointError(
                    "the rows are damaged: expected each row once in all parts of the checkpoint, got "
                    f"{ids[is_loaded[slots]][0]} more than once; use an earlier checkpoint"
                )
            is_loaded[slots] = True
            between()
        self.load_dense(part)

    def absorb(self, part: StorePart) -> None:
        """Insert or replace all rows of `part`; ignore its dense slice."""
        self._check_rows(part, _nothing, size=max(len(part.ids), 1))
        for chunk in _chunks(len(part.ids)):
            self._take_rows(part, chunk, np.ones(N_BUCKET, np.bool_))

    def load_dense(self, part: StorePart) -> None:
        """Take the overlap of the dense slice of `part` with this one's."""
        state = len(self._dense.table)
        if part.dense.shape[0] != state:
            raise CheckpointError(
                f"expected {state} numbers of each dense parameter, got {part.dense.shape[0]}; "
                "a checkpoint fits only the optimizer that it was made with"
            )
        if self._rule.is_adam:
            self._rates.saw_steps(part.dense[-1])
        self._dense.load(part.dense_offset, part.dense)

    def place_dense(self, index: int, n_ps: int) -> None:
        """Hold the dense slice of PS `index` of `n_ps` from now on; the overlap is kept."""
        self._dense.place(index, n_ps)

    def begin_move(self, buckets: Buckets) -> int:
        """Make all rows of `buckets` pending, now and whenever they change; return how many."""
        self._pending.begin(buckets)
        return self.n_pending

    def take_pending(self, limit: int) -> StorePart:
        """Return copies of at most `limit` pending rows, and clear their marks; without the dense slice."""
        slots, rows = self._pending.take(limit), self._rows
        return StorePart(rows.ids[slots], rows.table[slots], 0, self._dense.table[:, :0])

    def cancel_move(self) -> None:
        """Cancel a migration; all rows are kept."""
        self._pending.cancel()

    def drop(self, buckets: Buckets, between: Callable[[], None] = _nothing) -> int:
        """Free the rows of `buckets`; return how many. Rows of other buckets may still be pending."""
        n_before = self._rows.n
        self._pending.mark_all()
        self.await_choice(between)
        self.begin_drop(buckets)
        while self.drop_some():
            between()
        self._rows.renew_map(between)
        self._pending.recount()
        return n_before - self._rows.n

    def begin_drop(self, buckets: Buckets) -> None:
        """Free the rows of `buckets`, which are not requested any more, in the following steps."""
        self._pending.end(buckets)
        self._rows.begin_removal(buckets)

    def drop_some(self) -> bool:
        """Take a step of a millisecond of a drop, unless a copy needs its rows; whether it goes on."""
        return self._rows.remove_some(_DROP)

    def await_choice(self, between: Callable[[], None] = _nothing) -> None:
        """Wait until no copy needs rows that are to be freed."""
        while (cut := self._rows.cut) is not None and cut.chooses:
            cut.wait(_LOOK_EVERY_S)
            between()

    def _check_gradients(self, ids: Ids, gradients: Floats) -> None:
        if gradients.shape != (len(ids), self._rows.width):
            raise WireError(f"expected gradients ({len(ids)}, {self._rows.width}), got {gradients.shape}")

    def _check_dense(self, gradient: Floats) -> None:
        shape = self._dense.table[0].shape
        if gradient.shape != shape or not self._dense.ready:
            raise WireError(
                f"expected the gradient of a dense slice {shape} that has values, "
                f"got {gradient.shape}, values {'set' if self._dense.ready else 'not set'}"
            )

    def _take_rows(self, part: StorePart, chunk: slice, owned: Buckets) -> tuple[Ids, NDArray[np.int32]]:
        if self._rule.is_adam:
            self._rates.saw_steps(part.table[chunk, -1])
        mine = np.flatnonzero(owned[part.ids[chunk] % N_BUCKET])
        ids = np.ascontiguousarray(part.ids[chunk][mine])
        slots = self._rows.find_or_create(ids, fill=False)
        self._rows.save(slots)
        self._rows.table[slots] = part.table[chunk][mine]
        self._pending.mark(ids, slots)
        return ids, slots

    def _check_rows(self, part: StorePart, between: Callable[[], None], size: int = _CHUNK) -> None:
        """Raise `CheckpointError` for rows of another kind, or those that come twice among `size` rows."""
        row_length = self._rows.table.shape[1]
        if part.table.shape[1:] != (row_length,):
            raise CheckpointError(
                f"expected rows of {row_length} numbers, the checkpoint has {part.table.shape[1:]}; "
                "a checkpoint fits only the model and optimizer that it was made of"
            )
        try:
            for chunk in _chunks(len(part.ids), size):
                self._rows.check(part.ids[chunk])
                self._rows.check_distinct(part.ids[chunk])
                between()
        except WireError as error:
            raise CheckpointError(f"the rows are of another table, or damaged: {error}") from error


def _chunks(n: int, size: int = _CHUNK) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, n, size))
