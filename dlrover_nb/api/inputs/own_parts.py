"""The model and the data that `Cluster.submit` takes beside a job, in every form that people type.

Each becomes either settings of the job, or an object of the user that nodes run: a name of ours and a file
are settings, rows in memory are written to a file first, all else is the user's own code.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dlrover_nb.core.disk.paths import rows_folder
from dlrover_nb.core.jobfile import check_known, full_path, is_code, known_keys, known_values
from dlrover_nb.core.structs.job.datafiles import bare, is_pattern, is_url
from dlrover_nb.core.usercode import is_import

_LONGEST = 40  # of a name that is made here
UNNAMED = "job"


@dataclass(frozen=True, slots=True)
class OwnPart:
    """Settings of a job by their paths, and the user's own object, if it is one."""

    settings: tuple[tuple[str, object], ...] = ()
    own: object = None


def model_part(model: object) -> OwnPart:
    """Return what a `model` argument says.

    Raises
    ------
    InvalidValueError
        When it is a name that is neither a model of ours nor ``package.module:name``.
    """
    if isinstance(model, Mapping):
        return OwnPart((("model", model),))
    if not isinstance(model, str) or is_import(model):
        return OwnPart(own=model)
    check_known("model", model, known_values("model.name"))
    return OwnPart((("model.name", model), ("model.code", "")))


def data_part(data: object) -> OwnPart:
    """Return what a `data` argument says; writes rows in memory to a file.

    Raises
    ------
    InvalidValueError
        When rows in memory are no table of named columns.
    """
    if data is None or isinstance(data, str | Path):
        return _path_part(data)
    if isinstance(data, list | tuple) and data and all(isinstance(each, str | Path) for each in data):
        return OwnPart((("data.path", [full_path(str(each), Path.cwd()) for each in data]),))
    if isinstance(data, Mapping) and _is_group(data):
        rest = tuple((f"data.{key}", value) for key, value in data.items() if key != "path")
        part = data_part(data.get("path"))
        return OwnPart((*part.settings, *rest), part.own)
    from dlrover_nb.core.data.objects.arrow_tables import is_table  # noqa: PLC0415 - loads pyarrow
    from dlrover_nb.core.data.objects.stored import store_rows  # noqa: PLC0415 - loads pyarrow

    if isinstance(data, Mapping) or is_table(data):
        path = store_rows(dict(data) if isinstance(data, Mapping) else data, rows_folder())
        return OwnPart((("data.path", str(path)), ("data.format", "parquet")))
    return OwnPart(own=data)


def _path_part(path: str | Path | None) -> OwnPart:
    if path is None:
        return OwnPart()
    if isinstance(path, str) and is_code(path):
        return OwnPart(own=path)
    return OwnPart((("data.path", full_path(str(path), Path.cwd())),))


def _stem(path: str) -> str:
    """Return the name of a file without its extensions; of a pattern, that of the folder before it."""
    parts = PurePosixPath(bare(path) if is_url(path) else path).parts
    plain = [part for part in parts if not is_pattern(part)]
    name = PurePosixPath(plain[-1] if plain else "").name
    return name.lower().partition(".")[0] or name.lower()


def _is_group(data: Mapping[object, object]) -> bool:
    """Whether a mapping is the group ``data`` of a job file, and not columns by their names."""
    if not data or not set(data) <= set(known_keys("data")):
        return False
    lists = {"numeric", "categorical", "exclude", "types"}
    return all(
        key in {"path", "sequences"}
        or isinstance(value, str | int | float)
        or (key in lists and _are_names(value))
        or (key == "types" and isinstance(value, Mapping) and _are_names([*value.values()]))
        for key, value in data.items()
    )


def _are_names(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)


def free_name(data: object, used_names: Collection[str]) -> str:
    """Return a name for a job that has none: of its data's file, with a number where that is taken."""
    path = (data.get("path") if _is_group(data) else None) if isinstance(data, Mapping) else data
    path = path[0] if isinstance(path, list | tuple) and path else path
    stem = _stem(str(path)) if isinstance(path, str | Path) else ""
    name = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:_LONGEST].lstrip("-0123456789").rstrip("-") or UNNAMED
    return next(
        n for n in itertools.chain([name], (f"{name}-{i}" for i in itertools.count(2))) if n not in used_names
    )
