"""The job of a `submit`: a record, a mapping, YAML, a file or only a name, overridden by settings.

Settings are keys of a job file by their path, as the command line sets them. `settings_of` also takes what
people type: sizes of the plan as the verbs name them (``workers=2``), and keys of the groups ``data`` and
``model`` without their group (``label="clicked"``) where no other key has that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from dlrover_nb.core.client.handle import user_name
from dlrover_nb.core.commands.requests import SIZES, path_of_size
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.jobfile import (
    OLD_KEYS,
    check_known,
    data_format,
    dump_job,
    job_from,
    known_keys,
    load_mapping,
    with_start,
)
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.job.job import DEFAULT_POLICY, JobSpec
from dlrover_nb.core.structs.job.solution_names import RuleName, SolutionName

MOST_BYTES = 16 << 20  # of a file that a user named: a larger one is not a job file, and may be a device

GPU_KEYS = {"worker_gpu": "plan.worker.gpu"}  # no size: no plan that is chosen later has other ones

JobText = JobSpec | Mapping[str, object] | str | Path
Settings = Iterable[tuple[str, object]]  # (path of a key such as ``plan.worker.count``, value)


def job_of(job: JobText, settings: Settings = (), *, base: Path | None = None) -> JobSpec:
    """Return the job overridden by the settings, owned by its user where it names no owner.

    Parameters
    ----------
    job
        As `Cluster.submit` takes it.
    settings
        Keys of a job file by their path, and their values; a mapping sets only what it holds.
    base
        Folder that a relative data path of a text or a mapping starts from; the working directory by default.

    Raises
    ------
    InvalidValueError
        As `dlrover_nb.parse_job` does, and when there is no policy of that name.
    NotFoundError
        When there is no such file.
    """
    settings = tuple(settings)
    if isinstance(job, JobSpec) and not settings:
        spec = job
    else:
        content, base = _content(job, base)
        flat = tuple(_flat(settings))
        content = with_start(_for_new_path(content, dict(flat)), base)
        for key, value in flat:
            content = _with(content, key.split("."), value, key)
        spec = job_from(content, base=base)
    _check_policy(spec.policy)
    _check_stragglers(spec)
    return spec if spec.owner else replace(spec, owner=user_name())


def _check_policy(name: str) -> None:
    """Raise for an unknown policy here, where the user sees it, and not in the job's master."""
    if name != DEFAULT_POLICY:
        from dlrover_nb.core.driver.policies import find_policy  # noqa: PLC0415 - it loads the planner

        find_policy(name)


def _check_stragglers(spec: JobSpec) -> None:
    """Raise for a rule or a solution of a package that is broken, as above."""
    if spec.stragglers not in set(SolutionName) or spec.straggler_rule not in set(RuleName):
        from dlrover_nb.core.straggler.methods import find_methods  # noqa: PLC0415 - NumPy

        find_methods(spec)


def settings_of(given: Mapping[str, object]) -> tuple[tuple[str, object], ...]:
    """Return settings by their paths, of keyword arguments; see the module."""
    keys = (*known_keys(), *OLD_KEYS, *SIZES, *GPU_KEYS, *known_keys("data"), *known_keys("model"))
    for key in given:
        check_known("key", key.partition(".")[0], keys)
    return tuple((_path_of(key), value) for key, value in given.items())


def _path_of(key: str) -> str:
    if key in GPU_KEYS:
        return GPU_KEYS[key]
    if key in SIZES and key not in known_keys():
        return path_of_size(key)
    groups = [group for group in ("data", "model") if key in known_keys(group)]
    return f"{groups[0]}.{key}" if len(groups) == 1 and key not in known_keys() else key


def _for_new_path(content: dict[str, object], given: Mapping[str, object]) -> dict[str, object]:
    """Leave out the format of the job's data where a file with another extension takes its place."""
    data, path = content.get("data"), given.get("data.path")
    if not isinstance(data, dict) or not path or "data.format" in given:
        return content
    kind = data_format(_texts(path))
    if kind is None or kind == data_format(_texts(data.get("path"))):
        return content
    return {**content, "data": {key: value for key, value in data.items() if key != "format"}}


def _texts(path: object) -> list[str]:
    return [str(each) for each in (path if isinstance(path, list | tuple) else [path or ""])]


def read_job_file(path: Path | str) -> str:
    """Return the text of a job file.

    Raises
    ------
    NotFoundError, InvalidValueError
        When it is not there, or cannot be read.
    """
    return read_text(path, "job file")


def read_text(path: Path | str, what: str) -> str:
    """Return the text of a file that a user named; raises as `read_job_file` does."""
    path = Path(path).expanduser().absolute()
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode("utf-8")
    except FileNotFoundError as error:
        raise NotFoundError(f"no {what} {path}; check the path") from error
    except PermissionError as error:
        raise InvalidValueError(
            f"no permission to read {what} {path}; let its owner allow it (chmod u+r), or name another file"
        ) from error
    except OSError as error:
        raise InvalidValueError(
            f"cannot read {what} {path}: {error.strerror or error}; name a file with YAML text"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidValueError(f"cannot read {what} {path}: {error.reason}; expected YAML text") from error
    if len(content) > MOST_BYTES:
        raise InvalidValueError(
            f"cannot read {what} {path}: expected at most {MOST_BYTES >> 20} MiB of YAML text, got more"
        )
    return text


def _content(job: JobText, base: Path | None) -> tuple[dict[str, object], Path | None]:
    match job:
        case JobSpec():
            return load_mapping(dump_job(job)), base
        case Path():
            return load_mapping(read_job_file(job)), job.expanduser().absolute().parent
        case str() if is_name(job):
            return {"name": job}, base
        case str() if is_file_name(job):
            return _content(Path(job), base)
        case str():
            return load_mapping(job), base
        case Mapping():
            return dict(job), base
    raise InvalidValueError(
        f"expected a JobSpec, a mapping, YAML text or a job file's path, got {type(job).__name__}"
    )


def is_name(text: str) -> bool:
    """Whether text is the name of a job, and of no file."""
    try:
        _check.job_name(text)
    except InvalidValueError:
        return False
    return not Path(text).exists()


def is_file_name(text: str) -> bool:
    """Whether text names a job file and is none: YAML has a colon before a blank or a line's end."""
    return bool(text.strip()) and "\n" not in text and ": " not in f"{text} "


def _flat(settings: Settings, path: str = "") -> Iterable[tuple[str, object]]:
    """Yield the leaves of settings that are groups; a list that is written as a mapping is a leaf."""
    for key, value in settings:
        if isinstance(value, Mapping) and value and known_keys(f"{path}{key}"):
            yield from _flat(((str(k), v) for k, v in value.items()), f"{path}{key}.")
        else:
            yield f"{path}{key}", value


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
        allowed = ", ".join(known_keys(group)) or "no keys"
        raise InvalidValueError(f"{group} must be a group of {allowed} to set {path}, got {inner!r}")
    return {**content, key: _with(inner, rest, value, path)}
