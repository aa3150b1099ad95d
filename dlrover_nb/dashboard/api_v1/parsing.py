"""From the text of a request to records: everything that is not exactly as declared is refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

import msgspec

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

T = TypeVar("T")

_KEY = re.compile(r"[!-~]{1,200}")
_SEEN = re.compile(r'"(d\d{1,14})"', re.ASCII)
_REFUSED = (msgspec.MsgspecError, ValueError, RecursionError)
DOCS = "/api/v1/docs says what it takes"


def read_query(arguments: Mapping[str, Sequence[bytes]], kind: type[T]) -> T:
    """Return the parameters of an address as a record; `InvalidValueError` names the one at fault."""
    if many := [name for name, values in arguments.items() if len(values) > 1]:
        raise InvalidValueError(
            f"each parameter must be given once, got {shown(many[0])} several times; {DOCS}"
        )
    try:
        given = {name: values[0].decode() for name, values in arguments.items()}
        return msgspec.convert(given, kind, strict=False)
    except _REFUSED as error:
        raise InvalidValueError(_told(error, "the address")) from error


def read_body(body: bytes, kind: Any) -> Any:  # noqa: ANN401 - a union of types has no useful static type
    """Return a body as a record of its kind; `InvalidValueError` names the field at fault."""
    try:
        return msgspec.json.decode(body, type=kind)
    except _REFUSED as error:
        raise InvalidValueError(_told(error, "the body")) from error


def read_key(header: str | None) -> str:
    """Return an idempotency key; empty: none was sent."""
    if header is None:
        return ""
    if not _KEY.fullmatch(header):
        raise InvalidValueError(
            f"Idempotency-Key must be 1 to 200 letters of ASCII without spaces, got {shown(header)}; "
            "a UUID will do"
        )
    return header


def read_seen(header: str | None) -> str:
    """Return the version that ``If-Match`` names; empty: none was sent."""
    if header is None:
        return ""
    if (match := _SEEN.fullmatch(header)) is None:
        raise InvalidValueError(
            f'If-Match must be the ETag of the job, such as "d3", got {shown(header)}; send it as it came'
        )
    return match[1]


def _told(error: Exception, where: str) -> str:
    """Return what msgspec found, in the words of this product: expected, got, what to do."""
    text = str(error).replace("`", "")
    return f"{where}: {text[:1].lower()}{text[1:]}; {DOCS}"
