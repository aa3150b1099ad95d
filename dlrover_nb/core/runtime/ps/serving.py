"""The data plane of a parameter server: requests of workers, one at a time, on the store of its epoch.

One thread owns the store, so a request is atomic without locks: in asynchronous training (ASP) the gradients
of two workers never mix within a row. Requests for another epoch than the served one are refused, since the
sender's mapping of rows to PS may be stale. Requests of a worker that the master gave up are refused, since
others train its shards (`core.master.own.nodes.fencing`). A repeated request is identified by its step and
answered again without applying it twice.

The arrays of a worker on this host may lie in its slab (`slab`): gradients are read there, and rows and dense
parameters are written there. Then it rings for most of its exchanges, and the compiled kernel serves those
that are plain while this thread waits (`kernels.bell_requests`); the same code as for messages serves the
rest.

In GBA gradients are gathered into global batches (`gathering`), which is never plain to the kernel. In
deterministic training they are kept until all of their step are there (`ordered_steps`).

In BSP gradients are kept until their round has ended (`gradient_rounds`). On the PS of index 0
`round_barrier` decides which workers may continue; a waiting worker is answered when a message of another one
releases it.

An exchange applies gradients, then reads rows and the dense slice. A compiled kernel does both in one call
where a request is as those of almost every iteration of asynchronous training are; the methods of the store
do the rest, with the same bits. It reads most of the messages with such requests as well (`plain_exchanges`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np
import zmq

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange.message_decoder import MessageDecoder, receive
from dlrover_nb.core.runtime.exchange.packing import pack_answer, unpack_push
from dlrover_nb.core.runtime.exchange.push_pull import (
    NO_SLAB,
    Arrive,
    BarrierMessage,
    ChunkTaken,
    DenseReady,
    Exchange,
    Exchanged,
    ExchangeRefused,
    Fenced,
    GradientsKept,
    InitDense,
    Join,
    KeepGradients,
    Leave,
    MoveChunk,
    NotMember,
    OfEpoch,
    OfferSlab,
    OpenSession,
    Probe,
    Probed,
    Proceed,
    SlabTaken,
    StaleEpoch,
    ToPs,
)
from dlrover_nb.core.runtime.exchange.shared_block import SharedArray, aligned
from dlrover_nb.core.runtime.exchange.wire import encode, n_byte
from dlrover_nb.core.runtime.process.time_accounting import Part, TimeAccounting
from dlrover_nb.core.runtime.ps.gathering import Gathering
from dlrover_nb.core.runtime.ps.gradient_rounds import Rounds
from dlrover_nb.core.runtime.ps.ordered_steps import OrderedSteps
from dlrover_nb.core.runtime.ps.plain_exchanges import PlainExchanges
from dlrover_nb.core.runtime.ps.round_barrier import Release, RoundBarrier
from dlrover_nb.core.runtime.ps.rung import RungRequests
from dlrover_nb.core.runtime.ps.update_ages import UpdateAges
from dlrover_nb.core.runtime.store import StorePart
from dlrover_nb.core.runtime.store.stale_steps import normalised_factors
from dlrover_nb.core.structs.job.spec_choices import StaleSteps, Sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.exchange.sealed import SealedRouter
    from dlrover_nb.core.runtime.exchange.slab import AttachedSlabs
    from dlrover_nb.core.runtime.exchange.sockets import Socket
    from dlrover_nb.core.runtime.process.time_accounting import TimeAccounting
    from dlrover_nb.core.runtime.store import ParameterStore
    from dlrover_nb.core.structs.job.job import JobSpec

    Arrays = list[NDArray[Any]]
    Ids = NDArray[np.int64]
    Answer = tuple[NDArray[np.float32], NDArray[np.float32]]
    AnyArray = NDArray[Any] | SharedArray

_log = logging.getLogger(__name__)

NO_EPOCH = -1
_IDS, _FLOAT = np.dtype(np.int64), np.dtype(np.float32)
_REQUESTS_IN_A_ROW = 64  # then check for orders of the master
_EXCHANGE_ARRAYS = ((_IDS, 1), (_FLOAT, 2), (_FLOAT, 1), (_IDS, 1))
_CHUNK_ARRAYS = ((_IDS, 1), (_FLOAT, 2), (_FLOAT, 2))


def apply(  # noqa: PLR0913 - the age by keyword
    request: Exchange,
    arrays: Arrays,
    out: Answer,
    store: ParameterStore,
    rounds: Rounds,
    accounting: TimeAccounting,
    *,
    age_class: int = 0,
) -> tuple[float, float | None]:
    """Apply the gradients of a request, and maybe read what it asks for as well.

    Parameters
    ----------
    arrays
        Distinct ids [n], their gradients [n, width], the dense gradient [m] or none, and ids to read [k].
    out
        Where rows [k, width] and the dense slice are written.
    rounds
        Gradients that wait for the end of their round.
    age_class
        Of the gradients, where steps follow it.

    Returns
    -------
    tuple[float, float | None]
        Seconds of the update and of reading; None: nothing was read yet.

    Raises
    ------
    WireError
        When the gradients do not fit the store or are not usable: then none is applied.
    """
    ids, gradients, dense_gradient, wanted = arrays
    accounting.switch(Part.UPDATE)
    if request.done is None and request.rate == 1.0:
        pushed = ids, gradients, dense_gradient
        took_s = store.exchange(request.ps_epoch, pushed, wanted, out, age_class=age_class)
        if took_s is not None:
            whole_s = accounting.switch(Part.OTHER)
            accounting.share(Part.LOOKUP, min(1.0, took_s[1] / whole_s) if whole_s > 0 else 0.0)
            return took_s
    store.check_usable(gradients, dense_gradient)  # both, before either is applied
    if request.done is not None:
        rounds.apply(request.done, store)
    if len(ids):
        store.push(ids, gradients, request.rate)
    if len(dense_gradient):
        factor = store.dense_factors[age_class] if store.dense_factors else 1.0
        store.push_dense(dense_gradient, request.rate * factor)
    return accounting.switch(Part.LOOKUP), None


def read(wanted: Ids, out: Answer, store: ParameterStore, accounting: TimeAccounting) -> float:
    """Write rows [k, width] and the dense slice into `out`; return the seconds that it took."""
    accounting.switch(Part.LOOKUP)
    store.pull(wanted, out[0])
    store.read_dense(out[1])
    return accounting.switch(Part.OTHER)


class Serving:
    """Serves requests of workers from a store.

    Parameters
    ----------
    router
        Socket of the requests; it belongs to the caller.
    accounting
        Accounting of the time of the node.
    name
        Of the node, for the log.
    spec
        Kind of synchronization.
    slabs
        Memory shared with workers.
    sealed
        Carries sealed sessions; it belongs to the caller. None: on one host nothing is encrypted.

    Attributes
    ----------
    ages
        How old the gradients were that it applied.
    """

    def __init__(
        self,
        router: Socket,
        accounting: TimeAccounting,
        name: str,
        spec: JobSpec,
        slabs: AttachedSlabs,
        *,
        sealed: SealedRouter | None = None,
    ) -> None:
        self._router, self._accounting, self._name, self._spec = router, accounting, name, spec
        self._slabs, self._sealed = slabs, sealed
        self._decoder = MessageDecoder(name, ToPs | MoveChunk)
        self.rung = RungRequests(slabs, accounting, self._decoder)
        self._plain = PlainExchanges(accounting)
        self.store: ParameterStore | None = None
        self.epoch = NO_EPOCH
        self._applied: dict[bytes, int] = {}  # last step of each connection
        self.take_chunk: Callable[[MoveChunk, StorePart], ChunkTaken] = _take_nothing
        self._rounds, self._barrier = Rounds(), RoundBarrier(spec.sync, spec.staleness)
        self.ages = UpdateAges(spec)
        self._gathering: Gathering | OrderedSteps | None = None
        self._asked: dict[str, tuple[bytes, int]] = {}  # last request of each worker to the barrier
        self._forgotten: set[str] = set()  # workers that were given up; their names are not used again

    @property
    def n_dropped(self) -> int:
        """Messages that were no requests; they are not answered."""
        return self._decoder.n_dropped

    def open(self, store: ParameterStore, epoch: int) -> None:
        """Serve `store` under `epoch` from now on."""
        self.store, self.epoch, self._applied = store, epoch, {}
        is_normalised = self._spec.stale_steps is StaleSteps.NORMALISED
        store.dense_factors = normalised_factors() if is_normalised else ()
        self._rounds, self._barrier = Rounds(), RoundBarrier(self._spec.sync, self._spec.staleness)
        self._asked = {}
        self.ages.begin(self._slabs.bells.values())
        self._gathering = None
        if self._spec.sync is Sync.GBA:
            self._gathering = Gathering(self._spec, self.ages, store)
        elif self._spec.deterministic:
            self._gathering = OrderedSteps(self.ages, store)

    def close(self) -> None:
        """Stop serving and release the store."""
        self.store, self.epoch, self._gathering = None, NO_EPOCH, None

    def settle(self, n_step: int | None = None) -> None:
        """Apply all gradients that workers believe to be applied: before the store is copied or moves.

        All workers are paused then, so no gradients come between this and what it is done for. In
        deterministic training these are the gradients of the first `n_step` steps.
        """
        if isinstance(self._gathering, OrderedSteps):
            self._gathering.settle(n_step)
        elif self._gathering is not None:
            self._gathering.settle()

    def serve(self) -> None:
        """Answer the pending requests."""
        for identity, frames in _pending(self._router):
            if self._sealed is not None:
                self._sealed.answer_in_clear(identity)
            self._serve(identity, frames)

    def serve_sealed(self) -> None:
        """Answer the pending requests of sealed sessions."""
        assert self._sealed is not None
        for session, message in _pending(self._sealed.socket):
            try:
                identity, frames = self._sealed.unseal(session, message)
            except WireError as error:
                self._decoder.drop(str(error), session)
                continue
            self._serve(identity, frames)

    @property
    def members(self) -> tuple[str, ...]:
        """Members of the rounds of this PS, or workers whose gradients it gathers."""
        return self._barrier.members if self._gathering is None else self._gathering.members

    def forget(self, worker: str) -> None:
        """Refuse all requests of a worker that was given up, and remove it from the rounds."""
        self._forgotten.add(worker)
        for identity in self._slabs.bells:
            if worker_of(identity) == worker:
                self._slabs.refuse(identity)
        if self._gathering is not None:
            self._gathering.forget(worker)
        self._send_releases(self._barrier.leave(worker))

    def adjust(self, sizes: Mapping[str, int], accumulate: Mapping[str, int]) -> None:
        """Set batch sizes of workers, and how many mini-batches each is, from one round on."""
        first = self._barrier.adjust(sizes, accumulate)
        parts = f" in mini-batches {dict(accumulate)}" if accumulate else ""
        _log.info("%s: batch sizes %s%s from round %d on", self._name, dict(sizes), parts, first)

    def set_backups(self, n: int) -> None:
        """Let rounds end without their last `n` members."""
        _log.info("%s: rounds end without their last %d members", self._name, n)
        self._send_releases(self._barrier.set_backups(n))

    def wait(self, descriptors: Sequence[int], timeout_s: float) -> None:
        """Wait for a descriptor or what `serve_rung` has to do; serve meanwhile what a kernel can."""
        self.rung.wait(self.store, self.epoch, descriptors, timeout_s)

    def serve_rung(self) -> None:
        """Serve the requests that workers rang for and that wait for Python."""
        for identity, request, arrays in self.rung.take():
            if (refusal := self._refusal(identity, request)) is not None:
                self._send(identity, refusal)
            elif not self.rung.answers_again(identity, request.step):
                assert self.store is not None
                self._serve_rung(identity, request, arrays, self.store)

    def _serve_rung(self, identity: bytes, request: Exchange, arrays: Arrays, store: ParameterStore) -> None:
        try:
            if not self.rung.creates(identity, arrays[0], store, self.epoch):
                self._exchange(identity, request, arrays, store, rung=True)
        except WireError as error:
            self._refuse(identity, error)
        self._accounting.switch(Part.OTHER)

    def _own(self, identity: bytes, arrays: Arrays) -> Arrays:
        """Return the arrays of a message; copies of those in a slab, which its worker cannot change."""
        if (block := self._slabs.block(identity)) is None:
            return arrays
        return [each.copy() if np.may_share_memory(each, block.data) else each for each in arrays]

    def _refuse(self, identity: bytes, error: WireError) -> None:
        _log.warning("%s refused a request of %r: %s", self._name, identity, error)
        self._send(identity, ExchangeRefused(str(error)))

    def _serve(self, identity: bytes, frames: Sequence[Any]) -> None:
        self._accounting.count_bytes(0, n_byte(frames))
        if self._gathering is None and self._serve_plain(identity, frames):
            return
        request = self._decoder.read(frames, identity, self._slabs.block(identity))
        if request is None:
            return
        message, arrays = request
        try:
            self._answer(identity, message, self._own(identity, arrays))
        except WireError as error:
            self._refuse(identity, error)
        self._accounting.switch(Part.OTHER)

    def _serve_plain(self, identity: bytes, frames: Sequence[Any]) -> bool:
        """Whether a message was one that the kernel serves, and is answered."""
        step = self._plain.read(frames, self.store, self.epoch)
        if step is None or step <= self._last_step(identity):
            return False
        if (worker := worker_of(identity)) in self._forgotten:
            return False
        assert self.store is not None
        reader = self.ages.reader(identity, worker)
        answer = self._plain.respond(self.store, reader, is_copied=self._copies(identity))
        if answer is None:
            return False
        self._applied[identity] = step
        self._send_frames(identity, answer)
        return True

    def _last_step(self, identity: bytes) -> int:
        """Return the last step of a connection whose gradients were applied; -1: none were."""
        return max(self._applied.get(identity, -1), self._slabs.rung_step(identity))

    def _copies(self, identity: bytes) -> bool:
        """Whether the frames of an answer are copied; those in transit must not change."""
        return self._sealed is not None and self._sealed.copies(identity)

    def _send(self, identity: bytes, answer: object, beside: Sequence[AnyArray] = ()) -> list[Any]:
        """Send an answer; return its frames."""
        frames = encode(answer, beside)
        self._send_frames(identity, frames)
        return frames

    def _send_frames(self, identity: bytes, frames: list[Any]) -> None:
        self._post(identity, frames)
        self._accounting.count_bytes(n_byte(frames), 0)

    def _post(self, identity: bytes, frames: list[Any]) -> None:
        if self._sealed is None or not self._sealed.send(identity, frames):
            self._router.send_multipart([identity, *frames], copy=False)

    def _answer(self, identity: bytes, message: ToPs | MoveChunk, arrays: Arrays) -> None:
        if isinstance(message, MoveChunk):
            ids, table, dense = _expect(arrays, _CHUNK_ARRAYS)
            part = StorePart(ids, table, message.dense_offset, dense)
            self._send(identity, self.take_chunk(message, part))
            return
        if isinstance(message, OpenSession):
            self._open_session(identity)
            return
        if isinstance(message, OfferSlab):
            self._take_slab(identity, message)
            return
        if (refusal := self._refusal(identity, message)) is not None:
            self._send(identity, refusal)
            return
        assert self.store is not None
        match message:
            case Exchange():
                self._exchange(identity, message, arrays, self.store)
            case InitDense():
                self.store.init_dense(*_expect(arrays, ((_FLOAT, 1),)))
                self._send(identity, DenseReady(self.epoch))
            case KeepGradients():
                self._keep(identity, message, arrays, self.store)
            case Probe():
                self._send(identity, Probed(self.epoch), _expect(arrays, ((_IDS, 1),)))
            case Join() | Arrive() | Leave():
                self._handle_barrier(identity, message)
            case _:
                assert_never(message)

    def _take_slab(self, identity: bytes, offer: OfferSlab) -> None:
        worker = worker_of(identity)
        is_taken = self._slabs.attach(identity, offer, is_served=worker not in self._forgotten)
        if (bell := self._slabs.bells.get(identity)) is not None:
            self.ages.follow(identity, worker, bell)
        self._send(identity, SlabTaken(offer.number, is_taken, bell is not None))

    def _refusal(self, identity: bytes, message: OfEpoch) -> Fenced | StaleEpoch | None:
        if (worker := worker_of(identity)) in self._forgotten:
            _log.warning("%s refused %s of %s: it was given up", self._name, type(message).__name__, worker)
            return Fenced(self.epoch)
        is_stale = self.store is None or message.ps_epoch != self.epoch
        return StaleEpoch(self.epoch) if is_stale else None

    def _open_session(self, identity: bytes) -> None:
        if self._sealed is None:
            raise WireError("this PS encrypts nothing, as its socket is on its own host")
        self._send(identity, self._sealed.open_session(identity))

    def _handle_barrier(self, identity: bytes, message: BarrierMessage) -> None:
        """Handle a barrier message; the worker is released now, or when its peers have arrived.

        A repetition that comes after later messages of its worker is dropped: the worker no longer waits for
        its answer.
        """
        worker = message.worker
        before, step = self._asked.get(worker, (identity, message.step))
        if (connection_number(identity), message.step) < (connection_number(before), step):
            return
        self._asked[worker] = identity, message.step
        match message:
            case Join():
                self._send_releases(self._barrier.join(worker))
            case Arrive() if self._barrier.is_member(worker):
                self._send_releases(self._barrier.arrive(worker, message.round, message.n_row))
            case Arrive() | Leave():
                self._send(identity, NotMember(self.epoch, message.step))
                self._send_releases(self._barrier.leave(worker))
            case _:
                assert_never(message)

    def _send_releases(self, releases: tuple[Release, ...]) -> None:
        for each in releases:
            identity, step = self._asked[each.worker]
            self._send(identity, Proceed(self.epoch, step, each.go))

    def _keep(self, identity: bytes, request: KeepGradients, arrays: Arrays, store: ParameterStore) -> None:
        if self._answers_again(identity, request.step, in_slab=request.in_slab):
            return
        rows, row_gradients, dense_gradient = _expect(arrays, _EXCHANGE_ARRAYS[:3])
        gradients = None
        if not request.is_skipped:
            store.check_push(rows, row_gradients, dense_gradient)
            gradients = rows, row_gradients, dense_gradient
        self._rounds.keep(request.round, request.worker, gradients)
        frames = self._send(identity, GradientsKept(self.epoch, request.step))
        if request.in_slab:
            self._slabs.keep_answer(identity, request.step, frames)

    def _exchange(
        self, identity: bytes, request: Exchange, arrays: Arrays, store: ParameterStore, *, rung: bool = False
    ) -> None:
        in_slab = request.answer_at != NO_SLAB
        if not rung and self._answers_again(identity, request.step, in_slab=in_slab):
            return
        arrays = unpack_push(arrays, request.form, store.n_average)
        *_, pull_rows = arrays = _expect(arrays, _EXCHANGE_ARRAYS)
        places = self._places(identity, request.answer_at, len(pull_rows), store) if in_slab else None
        if places is not None:
            out = places[0].array, places[1].array
        else:
            out = store.new_answer(len(pull_rows), is_copied=self._copies(identity))
        update_s, lookup_s = 0.0, None
        if request.step > self._last_step(identity):
            update_s, lookup_s = self._update(identity, request, arrays, out, store)
            self._applied[identity] = request.step
        if lookup_s is None:
            lookup_s = read(pull_rows, out, store, self._accounting)
        scales: Sequence[float]
        beside: Sequence[AnyArray]
        if places:
            beside, scales = places, (1.0, 1.0)
        else:
            beside, *scales = pack_answer(*out, request.form, store.n_average)
        self._accounting.count()
        answer = Exchanged(self.epoch, request.step, update_s, lookup_s, *scales)
        if rung and places is not None:
            self._slabs.ring(identity, answer, places)
            return
        frames = self._send(identity, answer, beside)
        if in_slab:
            self._slabs.keep_answer(identity, request.step, frames)

    def _age_class(self, identity: bytes, request: Exchange, store: ParameterStore) -> int:
        """Return the class of the age of a request's gradients, where steps follow it."""
        follows = bool(store.dense_factors) and request.done is None
        return self.ages.class_of_next(identity, worker_of(identity)) if follows else 0

    def _update(
        self, identity: bytes, request: Exchange, arrays: Arrays, out: Answer, store: ParameterStore
    ) -> tuple[float, float | None]:
        """Apply or gather the gradients of a request; `apply`."""
        if self._gathering is not None:
            self._accounting.switch(Part.UPDATE)
            rows, row_gradients, dense, _ = arrays
            self._gathering.take(identity, worker_of(identity), request, (rows, row_gradients, dense))
            return self._accounting.switch(Part.LOOKUP), None
        n_round = self._rounds.n_applied
        age_class = self._age_class(identity, request, store)
        took_s = apply(request, arrays, out, store, self._rounds, self._accounting, age_class=age_class)
        self._count_age(identity, request, arrays, is_new_round=self._rounds.n_applied > n_round)
        return took_s

    def _count_age(self, identity: bytes, request: Exchange, arrays: Arrays, *, is_new_round: bool) -> None:
        """Count how old the gradients of a request were, or those of the round that it names."""
        if request.done is None:
            has_pushed = bool(len(arrays[0]) or len(arrays[2]))
            self.ages.count(
                identity, worker_of(identity), has_pushed=has_pushed, pushed=arrays[0], pulled=arrays[3]
            )
        elif is_new_round:
            self.ages.count_round(worker for worker, _ in request.done.contributors)

    def _answers_again(self, identity: bytes, step: int, *, in_slab: bool) -> bool:
        """Repeat the answer to a request in a slab, if there is one: the slab may hold a later request."""
        frames = self._slabs.answer(identity, step) if in_slab else None
        if frames is None:
            return False
        self._post(identity, frames)
        return True

    def _places(
        self, identity: bytes, at: int, n_row: int, store: ParameterStore
    ) -> tuple[SharedArray, SharedArray]:
        """Return where in the worker's slab the rows and the dense slice of an answer go."""
        block = self._slabs.block(identity)
        if block is None:
            raise WireError("an answer shall go into shared memory, which is not mapped here")
        width, n_dense = store.answer_shape
        rows = block.view(at, _FLOAT, (n_row, width))
        dense_at = at + aligned(rows.nbytes)
        dense = block.view(dense_at, _FLOAT, (n_dense,))
        return SharedArray(block.number, at, rows), SharedArray(block.number, dense_at, dense)


def _pending(router: Socket) -> Iterator[tuple[bytes, list[zmq.Frame]]]:
    for _ in range(_REQUESTS_IN_A_ROW):
        try:
            identity, *frames = receive(router, copy=False)
        except zmq.Again:
            return
        yield identity.bytes, frames


def worker_of(identity: bytes) -> str:
    """Return the name of the worker that a connection belongs to."""
    return identity.partition(b"/")[0].decode(errors="replace")


def connection_number(identity: bytes) -> int:
    """Return which connection of its worker this is: later ones have higher numbers."""
    number = identity.rpartition(b"/")[2]
    return int(number) if number.isdigit() else 0


def _take_nothing(chunk: MoveChunk, _part: StorePart) -> ChunkTaken:
    raise WireError(f"chunk {chunk.sequence} of {chunk.source} is not for this node")


def _expect(arrays: Arrays, kinds: tuple[tuple[np.dtype[Any], int], ...]) -> Arrays:
    """Return `arrays` when they are of these types and dimensions; one of no rows may be of any others.

    An empty one of many rows, which takes no bytes of a message, is refused: its answer would take memory.
    """
    fits = len(arrays) == len(kinds) and all(
        array.dtype == dtype and (array.ndim == n_dimension or array.shape[:1] == (0,))
        for array, (dtype, n_dimension) in zip(arrays, kinds, strict=True)
    )
    if not fits:
        actual = [(array.dtype.name, array.ndim) for array in arrays]
        expected = [(dtype.name, n_dimension) for dtype, n_dimension in kinds]
        raise WireError(f"expected arrays {expected}, got {actual}")
    return arrays
