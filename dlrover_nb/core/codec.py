"""Records to bytes and back: the one encoding of the wire, the journal, the history and files.

A record on its own is encoded by its fields. Where the reader cannot know the type (wire, journal), the
record travels as a pair (name of its type, fields) and the reader passes the types that it expects: anything
else is refused, so no input can create an object of another type.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args

import msgspec

from dlrover_nb.core.errors import DlroverError, WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

# msgspec lets some errors through: text that is not UTF-8 (ValueError), deep nesting (RecursionError).
_REFUSED = (msgspec.MsgspecError, ValueError, RecursionError, KeyError, DlroverError)


_CHECKSUM = re.compile(rb',"crc32":"([0-9a-f]{8})"\}\s*\Z')


def to_json(record: object) -> bytes:
    """Encode one record as JSON."""
    return msgspec.json.encode(record)


def to_short_json(record: object) -> bytes:
    """Encode one record as JSON without the fields that have their default; `from_json` sets them again."""
    return msgspec.json.encode(_without_defaults(record))


def _without_defaults(value: object) -> object:
    if not is_dataclass(value) or isinstance(value, type):
        return [_without_defaults(each) for each in value] if isinstance(value, tuple) else value
    values = ((each, getattr(value, each.name)) for each in fields(value))
    return {each.name: _without_defaults(own) for each, own in values if own != _default(each)}


def _default(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def from_json(data: bytes | str, kind: type[T]) -> T:
    """Decode one record of a known type.

    Raises
    ------
    WireError
        When the text is not such a record; it names the field at fault.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except _REFUSED as error:
        raise WireError(f"expected a {kind.__name__} as JSON, got something else: {error}") from error


def to_checked_json(record: object) -> bytes:
    """Encode one record as JSON with its CRC-32 as the last key, for files: disks change what they keep.

    Readers that know nothing of it see a key more.
    """
    body = to_json(record)
    return body[:-1] + b',"crc32":"%08x"}' % zlib.crc32(body)


def from_checked_json(data: bytes, kind: type[T]) -> T:
    """Decode one record of a known type, with its checksum or, as earlier releases wrote it, without.

    Raises
    ------
    WireError
        When the text is not such a record, or not the one that was written.
    """
    if (end := _CHECKSUM.search(data)) is None:
        return from_json(data, kind)
    body = data[: end.start()] + b"}"
    if (checksum := b"%08x" % zlib.crc32(body)) != end[1]:
        raise WireError(
            f"it was changed since it was written: expected the checksum {end[1].decode()}, "
            f"got {checksum.decode()}"
        )
    return from_json(body, kind)


def to_msgpack(record: object) -> bytes:
    """Encode one record as msgpack: smaller than JSON, and with numbers that are not finite."""
    return msgspec.msgpack.encode(record)


def from_msgpack(data: bytes, kind: type[T]) -> T:
    """Decode one record of a known type; `WireError` where it is anything else."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except _REFUSED as error:
        raise WireError(f"expected a {kind.__name__} as msgpack, got something else: {error}") from error


def with_texts(record: T, changed: Callable[[object], object]) -> T:
    """Return the record with its plain data (dicts, lists, texts, numbers) changed.

    Raises
    ------
    WireError
        When the changed data are no such record.
    """
    try:
        return msgspec.convert(changed(msgspec.to_builtins(record)), type(record))
    except _REFUSED as error:
        raise WireError(f"a changed {type(record).__name__} is none: {error}") from error


class Tagged(Generic[T]):
    """Encoder and decoder of one closed union of record types.

    Parameters
    ----------
    union
        A union of dataclasses, such as `core.structs.wire.messages.FromNode`, or a single one.
    written
        For a type that was renamed: the name that it keeps in what is written, so that files, journals and
        processes of other releases are still understood.
    """

    def __init__(self, *unions: Any, written: Mapping[type, str] | None = None) -> None:  # noqa: ANN401 - a union is no type to the type checker
        kinds = [kind for union in unions for kind in (get_args(union) or (union,))]
        self._names = {kind: (written or {}).get(kind, kind.__name__) for kind in kinds}
        self._decoders = {self._names[kind]: msgspec.msgpack.Decoder(kind) for kind in kinds}
        self._json = {self._names[kind]: msgspec.json.Decoder(kind) for kind in kinds}
        self._encode = msgspec.msgpack.Encoder().encode
        self._split = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw]).decode

    def pack(self, record: T) -> bytes:
        """Encode as msgpack: the wire's form."""
        return self._encode((self._names[type(record)], record))

    def unpack(self, data: bytes) -> T:
        """Decode what `pack` made.

        Raises
        ------
        WireError
            When it is not one of the union's records.
        """
        try:
            name, body = self._split(data)
            return self._decoders[name].decode(body)  # type: ignore[no-any-return]  # T is one of the kinds
        except _REFUSED as error:
            raise WireError(f"not one of {sorted(self._decoders)}: {error}") from error

    def to_line(self, record: T) -> bytes:
        """Encode as one line of JSON: the journal's form."""
        return msgspec.json.encode((self._names[type(record)], record)) + b"\n"

    def from_line(self, line: bytes) -> T:
        """Decode what `to_line` made; `WireError` where it is anything else."""
        try:
            name, body = msgspec.json.decode(line, type=tuple[str, msgspec.Raw])
            return self._json[name].decode(body)  # type: ignore[no-any-return]  # T is one of the kinds
        except _REFUSED as error:
            raise WireError(f"not one of {sorted(self._json)}: {error}") from error
