"""The job of a `submit`: a file or a cell, overridden by the flags of the line."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from dlrover_nb.api.inputs.job_of_submit import job_of, read_job_file
from dlrover_nb.core.basics.nearest import did_you_mean
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.jobfile import full_path, is_code, load_mapping
from dlrover_nb.core.models.built_in import MODELS
from dlrover_nb.core.models.trainable import CUSTOM
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.core.structs.job.start_from import is_path
from dlrover_nb.core.usercode import is_import
from dlrover_nb.magics.cell import run_python, yaml_mapping


def spec_of(
    file: str | None,
    given: tuple[tuple[str, object], ...],
    cell: str | None,
    namespace: dict[str, object],
) -> JobSpec:
    """Return the job of a file or a cell, overridden by the flags; runs the Python of the cell."""
    if file is not None and cell is not None and cell.strip():
        raise InvalidValueError("the job is given twice, in --file and in the cell; remove one of them")
    if file is not None:
        text, folder = _job_text(file)
        job: JobSpec | Mapping[str, object] = load_mapping(text)
    else:
        job, folder = _job_of_cell(cell or "", namespace), Path.cwd()
    is_own = ("data.format", DataFormat.OWN) in given
    settings = tuple((key, _from_here(key, value, is_own=is_own)) for key, value in given)
    if isinstance(job, Mapping) and job.get("name") is None and "name" not in dict(settings):
        raise InvalidValueError("the job has no name; write submit NAME, or `name:` in its YAML")
    return job_of(job, settings, base=folder)


def _job_of_cell(cell: str, namespace: dict[str, object]) -> JobSpec | Mapping[str, object]:
    """Return the job of a cell in YAML or Python; empty where it only defines what the flags name."""
    content = yaml_mapping(cell)
    if content is not None:
        return content
    value = run_python(cell, namespace)
    return value if isinstance(value, JobSpec | Mapping) else {}


def _from_here(key: str, value: object, *, is_own: bool) -> object:
    """Return a path given on the line as absolute: it starts from here and not from the job file's folder."""
    if key == "start_from.source" and is_path(str(value)):
        return str(Path.cwd() / Path(str(value)).expanduser())
    if key != "data.path" or is_own or is_code(str(value)):
        return value
    if isinstance(value, list | tuple):
        return [full_path(str(each), Path.cwd()) for each in value]
    return full_path(str(value), Path.cwd())


def _job_text(name: str) -> tuple[str, Path]:
    """Return a job file's text and folder; ``-`` is the standard input."""
    if name == "-":
        return sys.stdin.read(), Path.cwd()
    return read_job_file(name), Path(name).expanduser().absolute().parent


def own_code(spec: JobSpec, namespace: Mapping[str, object]) -> dict[str, object]:
    """Return the user's own model and data, where the job names variables of the notebook."""
    own: dict[str, object] = {}
    if spec.model.name not in {*MODELS, CUSTOM}:
        own["model"] = _variable("model", spec.model.name, namespace, tuple(MODELS))
    if spec.data.format == DataFormat.OWN and not is_import(spec.data.path):
        own["data"] = _variable("data", spec.data.path, namespace, ())
    return own


def _variable(what: str, name: str, namespace: Mapping[str, object], ours: tuple[str, ...]) -> object:
    if name in namespace:
        return namespace[name]
    defined = (n for n in namespace if not n.startswith("_"))
    choices = f"choose from {', '.join((*ours, 'package.module:name'))}"
    hint = did_you_mean(name, (*ours, *defined), otherwise=choices)
    raise NotFoundError(f"no {what} {name!r} here, built in or defined by you; {hint}")
