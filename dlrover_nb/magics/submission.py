"""The job that a `submit` asks for: a file or a cell of YAML, with the line's flags on top."""

from __future__ import annotations

import getpass
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.jobfile import job_from, known_keys, load_mapping

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job import JobSpec
    from dlrover_nb.magics import requests as rq


def spec_of(request: rq.Submit, cell: str | None) -> JobSpec:
    """Return the job of a file or a cell, with the flags on top."""
    if request.file is not None and cell is not None and cell.strip():
        raise InvalidValueError("the job is given twice, in --file and in the cell; drop one of them")
    text, folder = (cell or "", Path.cwd()) if request.file is None else _job_text(request.file)
    content = load_mapping(text)
    for key, value in request.settings:
        if key == "data.path":  # given on the line, so it starts from here and not from the job file's folder
            value = str(Path.cwd() / Path(str(value)).expanduser())  # noqa: PLW2901 - the same path, absolute
        content = _with(content, key.split("."), value, key)
    if content.get("name") is None:
        raise InvalidValueError("the job has no name; write submit NAME, or `name:` in its YAML")
    spec = job_from(content, base=folder)
    return spec if spec.owner else replace(spec, owner=getpass.getuser())


def _with(content: dict[str, object], keys: list[str], value: object, path: str) -> dict[str, object]:
    """Return `content` with one nested value set."""
    key, *rest = keys
    if not rest:
        return {**content, key: value}
    inner = content.get(key)
    if inner is None:
        inner = {}
    if not isinstance(inner, dict):
        group = path.removesuffix("." + ".".join(rest))
        known = ", ".join(known_keys(group)) or "no keys"
        raise InvalidValueError(f"{group} must be a group of {known} to set {path}, got {inner!r}")
    return {**content, key: _with(inner, rest, value, path)}


def _job_text(name: str) -> tuple[str, Path]:
    """Return a job file's text and folder; ``-`` is the standard input."""
    if name == "-":
        return sys.stdin.read(), Path.cwd()
    path = Path(name).expanduser().absolute()
    try:
        return path.read_text("utf-8"), path.parent
    except FileNotFoundError as error:
        raise NotFoundError(f"no job file {path}; check the path") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValueError(f"cannot read job file {path}: {error}; expected YAML text") from error
