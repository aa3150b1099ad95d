"""Whether the compiled library lays out shared structs as Python does: byte for byte, when it is loaded.

Both write to the same memory. A field that one of them has moved would be written over another one, and
parameters would be wrong without an error. So `layouts.c` says where each field lies, and a library that
differs is refused. Generating one side from the other was rejected: two plain declarations can be read, and a
comparison finds what generating would prevent.
"""

from __future__ import annotations

import ctypes
import itertools
from ctypes import POINTER, Structure, c_char_p, c_int64
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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
