"""The fields of requests as the faces need them: their plain types, bounds, and words for people."""

from __future__ import annotations

from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from msgspec import Meta

if TYPE_CHECKING:
    from msgspec.structs import FieldInfo


def plain_type(field: FieldInfo) -> tuple[type, bool]:
    """Return a field's type without bounds and null (``dict`` of a mapping), and whether it may be null."""
    inner, is_nullable = _without_null(field.type)
    bare = _bare(inner)
    return get_origin(bare) or bare, is_nullable


def number_type(field: FieldInfo) -> type:
    """Return the type of a field's number, or of the numbers of a mapping."""
    bare = _bare(_without_null(field.type)[0])
    number: type = _bare(get_args(bare)[1]) if get_origin(bare) is dict else bare
    return number


def description(field: FieldInfo) -> str:
    """Return what a field means."""
    return next((meta.description for meta in reversed(_metas(field)) if meta.description), "")


def extra(field: FieldInfo, name: str) -> str:
    """Return the metavar or the flag of a field; empty: it has none."""
    words = (meta.extra.get(name, "") for meta in reversed(_metas(field)) if meta.extra)
    return str(next(words, ""))


def _metas(field: FieldInfo) -> tuple[Meta, ...]:
    """Return what is declared of a field, the innermost first."""
    inner, _ = _without_null(field.type)
    return tuple(each for each in get_args(inner)[1:] if isinstance(each, Meta))


def _without_null(type_: Any) -> tuple[Any, bool]:  # noqa: ANN401 - types of `typing` have no common type
    if get_origin(type_) not in {Union, UnionType}:
        return type_, False
    (inner,) = (each for each in get_args(type_) if each is not type(None))
    return inner, True


def _bare(type_: Any) -> Any:  # noqa: ANN401 - as above
    return get_args(type_)[0] if get_origin(type_) is Annotated else type_
