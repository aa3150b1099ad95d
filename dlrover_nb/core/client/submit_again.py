"""How to run an ended job again: the `submit` of its differences from a new job of that name.

An ended job takes no more decisions, and its user wants the job back. The record of the job is at
hand, so the command can be named in full; a hint to "the job file" was rejected, as a job submitted by flags
or in a cell has none.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import yaml

from dlrover_nb.core.jobfile import dump_job, load_mapping
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec
from dlrover_nb.core.structs.job.secrets import without_secrets
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.core.usercode import is_import
from dlrover_nb.core.yamltext import to_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OF_THE_RUN = {"name", "owner"}  # the first is given by itself, the second is the person who submits


def submit_again(spec: JobSpec) -> str:
    """Return what to do to run the job again, as the end of an error's text.

    A notebook keeps errors, so the command of a job with secrets is not written out.
    """
    if not can_be_written(spec):
        return f"to run it again, submit {spec.name} from where you defined it"
    return f"`{submit_command(spec)}` runs it again"


def can_be_written(spec: JobSpec) -> bool:
    """Whether a job can be written out: it has no secrets, and its code can be imported by a name."""
    _, secret = without_secrets(spec)
    code = (spec.model.code, spec.data.path if spec.data.format == DataFormat.OWN else "")
    return not secret and spec.foreign is None and all(not name or is_import(name) for name in code)


def submit_command(spec: JobSpec) -> str:
    """Return the words of the `submit` that makes this job."""
    settings = (f"--set {shlex.quote(f'{key}={_flow(value)}')}" for key, value in _own_keys(spec))
    return " ".join((f"submit {spec.name}", *settings))


def short_file(spec: JobSpec) -> str:
    """Return a job file of the name and of the keys that a new job does not have by itself."""
    content: dict[str, Any] = {"name": spec.name}
    for path, value in _own_keys(spec):
        *groups, key = path.split(".")
        place = content
        for group in groups:
            place = place.setdefault(group, {})
        place[key] = value
    return to_yaml(content)


def _own_keys(spec: JobSpec) -> Iterator[tuple[str, object]]:
    guess = spec.data.format not in {DataFormat.CENSUS, DataFormat.OWN}  # where a job file does not say it
    new = load_mapping(dump_job(JobSpec(spec.name, data=DataSpec(guess=guess))))
    return _changes(load_mapping(dump_job(spec)), new)


def _changes(
    job: Mapping[str, object], new: Mapping[str, object], group: str = ""
) -> Iterator[tuple[str, object]]:
    """Yield the keys of a job file that differ from those of a new job, by path."""
    for key, value in job.items():
        default = new.get(key)
        if isinstance(value, dict):
            yield from _changes(value, default if isinstance(default, dict) else {}, f"{group}{key}.")
        elif group + key not in _OF_THE_RUN and (key not in new or value != default):
            yield f"{group}{key}", value


def _flow(value: object) -> str:
    """Return a value as YAML on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=float("inf"))
    return text.removesuffix("...\n").strip()
