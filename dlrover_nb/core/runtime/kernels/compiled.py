"""The inner loops in C (`kernel.c`), built when the package is installed; called without the GIL.

Bit for bit what `numpy_kernel` gives: the same operations in the same order on float32, none fused.

When the library is loaded, its layout of shared structs is compared with Python's, byte for byte. Both write
to the same memory. A field that one of them has moved would be written over another one, and
parameters would be wrong without an error. So `layouts.c` says where each field lies, and a library that
differs is refused. Generating one side from the other was rejected: two plain declarations can be read, and a
comparison finds what generating would prevent.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int64, c_uint64, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dlrover_nb.core.runtime.kernels import bell_requests, maps, numpy_kernel, plain_messages, plain_server
from dlrover_nb.core.runtime.kernels.plain_server import PlainServer
from dlrover_nb.core.structs.job.spec_choices import Optimizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.kernels.bell_requests import Reader
    from dlrover_nb.core.runtime.kernels.rule import Rule

    Ids = NDArray[np.int64]
    Slots = NDArray[np.int32]
    Floats = NDArray[np.float32]

# Built by setup.py under a name without a Python version: each Python loads the same library.
# The variable is for `make sanitize` alone, whose libraries stop the process at the first fault.
LIBRARY = Path(os.environ.get("DLROVER_NB_KERNEL_LIBRARY") or Path(__file__).with_name("_kernel.so"))
_VERSION = 18  # of kernel.c: a library that was built before the source changed is not used
_KINDS: Mapping[str, int] = {Optimizer.SGD: 0, Optimizer.ADAGRAD: 1, Optimizer.ADAM: 2}
_AMPLITUDE = float(numpy_kernel.AMPLITUDE)
_P, _I, _U, _F = c_void_p, c_int64, c_uint64, c_float
_SIGNATURES = {
    "initial_rows": (_P, _I, _P, _I, _I, _U, _F),
    "gather": (_P, _P, _I, _P, _P, _P, _I, _I, _U, _F),
    "update_rows": (_I, _P, _I, _P, _P, _P, _I, _I, _P, _P, _I),
    "update_dense": (_I, _P, _I, _P, _I, _P, _P, _I),
    "direct_find": (_P, _P, _P, _I),
    "slot_find": (_P, _P, _U, _P, _I, _P, _P, _I),
    "slot_count": (_P, _P, _I, _P, _I, _I),
    "slot_place": (_P, _U, _P, _I, _P, _P, _I),
    "slot_replace": (_P, _U, _P, _I, _P, _P, _P, _I),
    "distinct": (_P, _P, _P, _U, _P, _I),
    "group": (_P, _P, _P, _I, _P, _I, _P, _I),
    "look_up": (_P, _P, _P, _I),
    "add_rows": (_P, _P, _P, _F, _I, _I),
    "serve": (_P, _P, _I, _P, _I, c_double, _I),
    "serve_one": (_P, _P),
    "exchange": (_P, _P, _P, _P),
    "read_message": (_P,),
    "answer_message": (_P, _P),
    "count_exchange": (_P, _I, _P, _I, _P, _I, c_double),
}
_RETURNING = ("distinct", "exchange", "read_message", "answer_message")
_RULE = np.dtype([(name, np.float32) for name in ("rate", "beta1", "rest1", "beta2", "rest2", "epsilon")])
_STRUCTS: Mapping[str, type[ctypes.Structure] | np.dtype[Any]] = {
    "Request": bell_requests.Request,
    "Answer": bell_requests.Answer,
    "Bell": bell_requests.Bell,
    "Reader": bell_requests.Reader,
    "Watched": bell_requests.Watched,
    "Arrays": plain_server.Arrays,
    "Message": plain_messages.Message,
    "Saving": bell_requests.Saving,
    "Store": bell_requests.Parameters,
    "Rule": _RULE,
    "Step": plain_server.Step,
    "Line": maps.LINE_LAYOUT,
    "PollDescriptor": plain_server.PollDescriptor,
}


class Place(NamedTuple):
    """Where a field begins in its struct, and how long it is."""

    at: int
    n_byte: int

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.n_byte} bytes at byte {self.at}"


class _NamedPlace(Structure):
    _fields_ = (("name", c_char_p), ("at", c_int64), ("n_byte", c_int64))


def of_python(structs: Mapping[str, type[Structure] | np.dtype[Any]]) -> dict[str, Place]:
    """Return the places of the fields of structs, `STRUCT.FIELD`, and the size of each."""
    return {name: place for struct, kind in structs.items() for name, place in _places(struct, kind)}


def of_library(library: ctypes.CDLL) -> dict[str, Place]:
    """Return the same of a library."""
    library.layouts.restype = POINTER(_NamedPlace)
    records = itertools.takewhile(lambda record: record.name is not None, library.layouts())
    return {record.name.decode(): Place(record.at, record.n_byte) for record in records}


def difference(python: Mapping[str, Place], library: Mapping[str, Place]) -> str:
    """Return the first difference; empty: there is none."""
    for name in (*python, *library):
        if python.get(name) != library.get(name):
            return (
                f"expected {name} to have {_in_words(python.get(name))}, got {_in_words(library.get(name))}"
            )
    return ""


def _places(struct: str, kind: type[Structure] | np.dtype[Any]) -> Iterator[tuple[str, Place]]:
    if isinstance(kind, np.dtype):
        yield struct, Place(0, kind.itemsize)
        for name, (field, at, *_) in (kind.fields or {}).items():
            yield f"{struct}.{name}", Place(at, field.itemsize)
        return
    yield struct, Place(0, ctypes.sizeof(kind))
    for name, *_ in kind._fields_:
        field = getattr(kind, name)
        yield f"{struct}.{name}", Place(field.offset, field.size)


def _in_words(place: Place | None) -> str:
    return "no place" if place is None else str(place)


def flaw() -> str:
    """Return why the library is not used, as a sentence about it without its subject; empty: it is."""
    if not LIBRARY.exists():
        return "was not built"
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        return f"cannot be loaded ({error})"
    version = getattr(library, "version", int)()
    if version != _VERSION:
        return f"is of another release: expected version {_VERSION}, got {version}"
    differs = difference(of_python(_STRUCTS), of_library(library))
    return differs and f"does not share data as this release does: {differs}"


class Compiled:
    """The compiled kernel; see `numpy_kernel` for what each function does."""

    NAME = "c"

    def __init__(self) -> None:
        self._c = _load()

    def initial_rows(self, ids: Ids, width: int, seed: int) -> Floats:
        """Return the first values of rows."""
        ids, out = _packed(ids, np.int64), np.empty((len(ids), width), np.float32)
        self._c.initial_rows(
            _at(out), width, _at(ids), len(ids), width, numpy_kernel.seed_bits(seed), _AMPLITUDE
        )
        return out

    def gather(self, table: Floats, slots: Slots, ids: Ids, out: Floats, seed: int) -> None:
        """Write the values of rows into `out`; first values where a slot is -1."""
        ids, start = _packed(ids, np.int64), numpy_kernel.seed_bits(seed)
        (n, width), stride = out.shape, table.shape[1]
        self._c.gather(_at(out), _at(table), stride, _at(slots), None, _at(ids), n, width, start, _AMPLITUDE)

    def update_rows(
        self, table: Floats, slots: Slots, gradients: Floats, rule: Rule, corrections: Floats | None
    ) -> None:
        """Apply one step to rows."""
        if rule.added is not None:
            numpy_kernel.update_rows(table, slots, gradients, rule, corrections)
            return
        gradients = _packed(gradients, np.float32)
        numbers, (n, width) = _numbers(rule), gradients.shape
        self._c.update_rows(
            _KINDS[rule.optimizer], _at(table), table.shape[1], _at(slots), None, _at(gradients), n, width,
            _at(numbers), *_corrections(corrections),
        )  # fmt: skip

    def update_dense(self, dense: Floats, gradient: Floats, rule: Rule, corrections: Floats | None) -> None:
        """Apply one step to a dense slice."""
        if rule.added is not None:
            numpy_kernel.update_dense(dense, gradient, rule, corrections)
            return
        gradient, numbers = _packed(gradient, np.float32), _numbers(rule)
        stride = dense.strides[0] // dense.itemsize  # more than the elements where these begin a slice
        self._c.update_dense(
            _KINDS[rule.optimizer], _at(dense), stride, _at(gradient), len(gradient),
            _at(numbers), *_corrections(corrections),
        )  # fmt: skip

    def plain_server(self, rule: Rule) -> PlainServer | None:
        """Return what serves plain requests without Python; None: this rule is in numpy alone."""
        if rule.added is not None:
            return None
        server = PlainServer(self._c, numbers := _numbers(rule))
        server.parameters.kind, server.parameters.rule = _KINDS[rule.optimizer], _at(numbers)
        server.parameters.amplitude, server.parameters.first_state = _AMPLITUDE, rule.first_state
        return server

    def count_exchange(
        self, reader: Reader, pushed: Ids, pulled: Ids, at_s: float, *, has_pushed: bool
    ) -> None:
        """Count the ages of what an exchange brought, and what it read."""
        pushed, pulled = _packed(pushed, np.int64), _packed(pulled, np.int64)
        self._c.count_exchange(
            ctypes.addressof(reader), has_pushed, _at(pushed), len(pushed), _at(pulled), len(pulled), at_s
        )

    def direct_map(self, n_id: int) -> maps.DirectMap:
        """Return an empty map of ids in [0, n_id)."""
        return _DirectMap(n_id, self._c)

    def hash_map(self, most: int) -> maps.HashMap:
        """Return an empty map of any ids >= 0."""
        return _HashMap(most, self._c)

    def distinct(self, ids: Ids) -> tuple[Ids, Ids]:
        """Return the distinct ids in order of appearance, and the place of each id among them."""
        ids = _packed(ids, np.int64)
        rows, inverse = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
        scratch = np.zeros(1 << (2 * len(ids)).bit_length(), np.int32)
        n = self._c.distinct(_at(rows), _at(inverse), _at(scratch), len(scratch) - 1, _at(ids), len(ids))
        return rows[:n].copy(), inverse

    def grouped(self, rows: Ids, inverse: Ids, owner: Ids, n_owner: int) -> tuple[Ids, Ids, Ids]:
        """Return rows with those of one owner side by side, the places in them, and rows of each owner."""
        rows, inverse, owner = (_packed(array, np.int64) for array in (rows, inverse, owner))
        out, places, counts = np.empty_like(rows), np.empty_like(inverse), np.zeros(n_owner, np.int64)
        place = np.empty_like(rows)
        self._c.group(
            _at(out), _at(place), _at(counts), n_owner, _at(rows), len(rows), _at(owner), len(owner)
        )
        self._c.look_up(_at(places), _at(place), _at(inverse), len(inverse))
        return out, places, counts

    def add_rows(self, out: Floats, places: Ids, rows: Floats, weight: np.float32) -> None:
        """Add rows, times a weight, to those of `out` at distinct places."""
        rows = _packed(rows, np.float32)
        self._c.add_rows(_at(out), _at(places), _at(rows), weight, len(rows), out.shape[1])


class _DirectMap(maps.DirectMap):
    def __init__(self, n_id: int, library: ctypes.CDLL) -> None:
        super().__init__(n_id)
        self._c = library

    def find(self, ids: Ids, slot_ids: Ids) -> Slots:  # noqa: ARG002 - of the other map
        ids, out = _packed(ids, np.int64), np.empty(len(ids), np.int32)
        self._c.direct_find(_at(out), _at(self._slot), _at(ids), len(ids))
        return out


class _HashMap(maps.HashMap):
    def __init__(self, most: int, library: ctypes.CDLL) -> None:
        super().__init__(most)
        self._c = library

    def find(self, ids: Ids, slot_ids: Ids) -> Slots:
        ids, out = _packed(ids, np.int64), np.empty(len(ids), np.int32)
        self._c.slot_find(_at(out), *self._where(), _at(slot_ids), _at(ids), len(ids))
        return out

    def _counted(self, ids: Ids) -> Ids:
        ids, counts = _packed(ids, np.int64), np.zeros_like(self._n_row)
        self._c.slot_count(_at(counts), _at(self._directory), self._depth, _at(ids), len(ids), 1)
        return counts

    def _place(self, ids: Ids, slots: Slots) -> None:
        ids, slots = _packed(ids, np.int64), _packed(slots, np.int32)
        self._c.slot_place(*self._where(), _at(ids), _at(slots), len(ids))

    def _replace(self, ids: Ids, slots: Slots, to: Slots) -> None:
        ids, slots, to = _packed(ids, np.int64), _packed(slots, np.int32), _packed(to, np.int32)
        self._c.slot_replace(*self._where(), _at(ids), _at(slots), _at(to), len(ids))

    def _where(self) -> tuple[int, int, int, int]:
        """Return the lines, the last one of a piece, the directory and its depth."""
        return _at(self._lines.array), maps.N_LINE - 1, _at(self._directory), self._depth


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(str(LIBRARY))
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, c_int64 if name in _RETURNING else None
    return library


def _packed(array: NDArray[Any], kind: type[Any]) -> NDArray[Any]:
    return plain_server.readable(np.ascontiguousarray(array, kind))


def _at(array: NDArray[Any]) -> int:
    """Return where an array lies; the caller holds it until the call is over."""
    return array.ctypes.data


@functools.lru_cache(maxsize=256)
def _numbers(rule: Rule) -> NDArray[np.void]:
    """Return what `Rule` of kernel.h holds."""
    return np.array(plain_server.numbers_of(rule), _RULE)


def _corrections(corrections: Floats | None) -> tuple[int, int]:
    return (0, 0) if corrections is None else (_at(corrections), len(corrections))
