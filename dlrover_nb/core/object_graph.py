"""The state of live objects to bytes and back, whatever fields they have: what a snapshot is made of.

`codec` needs a type for every field, which a record has and an object that changes has not. Here each value
says what it is, so that a field that is added later is written without another line of code, and one that
cannot be written is an error at once instead of a loss after a restart. Objects that are shared stay shared,
because some decisions compare by identity.

Only records, enumerations and the objects of given packages are read back, and what they are read into is
made by name: a field that the reader does not know is dropped, and one that is missing has its default. So an
older snapshot is read by a newer release. Rejected: pickle, which runs what it reads and breaks with each
field that is added to a record with slots; a list of fields per class, which is forgotten when one is added.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter, deque
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from dlrover_nb.core.errors import DlroverError, WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_PACKAGE = "dlrover_nb.core."
_PLAIN = (type(None), bool, int, float, str, bytes)
_REFUSED = (
    msgspec.MsgspecError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    DlroverError,
    ImportError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
_GROUPS: Mapping[str, type] = {"t": tuple, "l": list, "s": set, "f": frozenset}
_LETTERS = {kind: letter for letter, kind in _GROUPS.items()}


class GraphEncoder:
    """Encodes one graph of objects.

    Parameters
    ----------
    links
        Objects that the reader has already, by name: they are referred to, not written.
    packages
        Of objects that are no records; their attributes are written.
    swapped
        What is written in place of an object of some type, for one that follows from less.
    """

    def __init__(
        self,
        links: Mapping[str, object],
        *,
        packages: tuple[str, ...] = (),
        swapped: Mapping[type, Callable[[Any], object]] | None = None,
    ) -> None:
        self._links = {id(value): name for name, value in links.items()}
        self._packages, self._swapped = packages, swapped or {}
        self._places: dict[int, int] = {}
        self._objects: list[object] = []

    def pack(self, value: object) -> bytes:
        """Return the bytes of a value and of all that it refers to.

        Raises
        ------
        WireError
            When part of it cannot be written; it names the type.
        """
        body = self._encode(value)
        return msgspec.msgpack.encode((self._objects, body))

    def _encode(self, value: Any) -> object:  # noqa: ANN401, PLR0911 - any value, one return per kind
        kind: Any = type(value)
        if kind in _PLAIN:
            return value
        if (name := self._links.get(id(value))) is not None:
            return ["k", name]
        if kind in _LETTERS:
            return [_LETTERS[kind], [self._encode(each) for each in value]]
        if kind is dict or kind is Counter:
            return [
                "d" if kind is dict else "c",
                [[self._encode(k), self._encode(v)] for k, v in value.items()],
            ]
        if kind is deque:
            return ["q", value.maxlen, [self._encode(each) for each in value]]
        if isinstance(value, Enum):
            return ["e", _name(kind), value.name]
        if isinstance(value, float):  # of numpy
            return float(value)
        return ["o", self._index(value)]

    def _index(self, value: object) -> int:
        """Return the place of an object in the list of all, each once."""
        place = self._places.get(id(value))
        if place is None:
            encoded = self._object(value)  # first what it refers to
            place = self._places[id(value)] = len(self._objects)
            self._objects.append(encoded)
        return place

    def _object(self, value: Any) -> object:  # noqa: ANN401 - as `_encode`
        kind: Any = type(value)
        if kind in self._swapped:
            return ["x", _name(kind), self._encode(self._swapped[kind](value))]
        has_state = _is_record(kind) or hasattr(value, "__dict__")
        if not (has_state and _may_be_read(kind, self._packages)):
            raise WireError(
                f"a {kind.__module__}.{kind.__qualname__} cannot be kept over a restart; "
                "keep records, numbers and texts instead"
            )
        state = {name: self._encode(each) for name, each in attributes(value).items()}
        return ["r", _name(kind), state]


class GraphDecoder:
    """Decodes what a `GraphEncoder` of the same arguments made; `swapped` makes the objects again."""

    def __init__(
        self,
        links: Mapping[str, object],
        *,
        packages: tuple[str, ...] = (),
        swapped: Mapping[type, Callable[[Any], object]] | None = None,
    ) -> None:
        self._links, self._packages = links, packages
        self._swapped = dict(swapped or {})
        self._objects: list[object] = []

    def unpack(self, data: bytes) -> Any:  # noqa: ANN401 - what it was
        """Return the value.

        Raises
        ------
        WireError
            When it is anything else, or of a release that this one cannot read.
        """
        try:
            objects, body = msgspec.msgpack.decode(data)
            for each in objects:
                self._objects.append(self._object(each))
            return self._decode(body)
        except _REFUSED as error:
            raise WireError(f"this state cannot be read: {error!r}") from error

    def _decode(self, value: Any) -> Any:  # noqa: ANN401, PLR0911 - as `_encode`
        if not isinstance(value, list):
            return value
        match value:
            case ["k", name]:
                return self._links[name]
            case ["d", items]:
                return {self._decode(key): self._decode(each) for key, each in items}
            case ["c", items]:
                return Counter({self._decode(key): each for key, each in items})
            case ["q", maxlen, items]:
                return deque(map(self._decode, items), maxlen)
            case ["e", name, member]:
                return _class(name, Enum)[member]
            case ["o", int(index)]:
                return self._objects[index]
            case [str(letter), items]:
                return _GROUPS[letter](map(self._decode, items))
            case _:
                raise ValueError(f"unknown form {value[:1]}")

    def _object(self, encoded: Any) -> object:  # noqa: ANN401 - as `_encode`
        form, name, state = encoded
        kind: Any = _class(name, object)
        if form == "x":
            return self._swapped[kind](self._decode(state))
        if not _may_be_read(kind, self._packages):
            raise ValueError(f"{name} is no record")
        return _made(kind, {key: self._decode(each) for key, each in state.items()})


def attributes(value: object) -> Mapping[str, object]:
    """Return what an object holds: the fields of a record, or the attributes of any other."""
    kind: Any = type(value)
    return {name: getattr(value, name) for name in _field_names(kind)} if _is_record(kind) else vars(value)


def fill(value: object, state: Mapping[str, object]) -> None:
    """Give an object the attributes of an earlier one of its class; what was unknown then stays as it is."""
    for name, fresh in vars(value).items():
        if name in state:
            setattr(value, name, _completed(state[name], fresh))


def _completed(old: object, fresh: object) -> object:
    """Add to an object what its class has got since."""
    if type(old) is type(fresh) and hasattr(old, "__dict__") and not is_dataclass(old):
        old.__dict__.update({name: each for name, each in vars(fresh).items() if name not in vars(old)})
    return old


def _made(kind: Any, state: dict[str, Any]) -> object:  # noqa: ANN401 - a class
    if _is_record(kind):
        names = _field_names(kind)
        return kind(**{name: each for name, each in state.items() if name in names})
    made: object = object.__new__(kind)
    made.__dict__.update(state)
    return made


def _is_record(kind: type) -> bool:
    return is_dataclass(kind)


@cache
def _field_names(kind: Any) -> tuple[str, ...]:  # noqa: ANN401 - a class, and mypy takes those for unhashable
    return tuple(each.name for each in fields(kind) if each.init)


@cache
def _may_be_read(kind: Any, packages: tuple[str, ...]) -> bool:  # noqa: ANN401 - as above
    module = kind.__module__ + "."
    return module.startswith(_PACKAGE) and (_is_record(kind) or module.startswith(packages))


@cache
def _name(kind: Any) -> str:  # noqa: ANN401 - as above
    return f"{kind.__module__.removeprefix(_PACKAGE)}:{kind.__qualname__}"


@cache
def _class(name: str, least: Any) -> Any:  # noqa: ANN401 - as above
    """Return the class of this package that a name refers to, also where its module has moved since."""
    module, _, path = name.partition(":")
    for place in _places(module):
        try:
            kind = getattr(importlib.import_module(place), path)
        except (ImportError, AttributeError):
            continue
        if isinstance(kind, type) and issubclass(kind, least) and kind.__module__ == place:
            return kind
    raise ValueError(f"{name} is no {least.__name__} of this package")


def _places(module: str) -> Iterator[str]:
    """Yield where a module is, then the modules of its room, as its classes may have gone there."""
    yield _PACKAGE + module
    room, _, rest = module.partition(".")
    file = rest.rpartition(".")[2]
    folder = importlib.import_module(_PACKAGE + room)
    paths = getattr(folder, "__path__", ())
    places = (each.name for each in pkgutil.walk_packages(paths, f"{_PACKAGE}{room}."))
    modules = (place for place in places if not place.endswith(".__main__"))  # those are programs
    yield from sorted(modules, key=lambda place: place.rpartition(".")[2] != file)
