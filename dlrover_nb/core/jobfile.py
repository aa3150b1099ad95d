"""Job files: from YAML to a `JobSpec` and back.

The file's keys are the record's fields (``n_epoch`` is written ``epochs``), groups are nested, every key but
``name`` has a default, and a group that is given in part keeps the defaults of the rest. ``null`` means none:
no budget, no quota, no pin, an unknown price. The types of the records drive the readers below, so a new
field is added in one place. `dump_job` writes every value, but for GPUs where there are none, so that images
of earlier releases read the file: ``parse_job(dump_job(spec)) == spec``.

Each error is one line with the path of the field. Nothing is inferred, except the format of the data from the
extensions of its files.
"""

from __future__ import annotations

import types
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from dlrover_nb.core import extensions
from dlrover_nb.core.basics.nearest import by_words, did_you_mean
from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.built_in import MODELS
from dlrover_nb.core.models.trainable import CUSTOM
from dlrover_nb.core.moments import read_moment, write_moment
from dlrover_nb.core.structs.data.column_types import TAB
from dlrover_nb.core.structs.job.datafiles import check_readable, format_of, is_url
from dlrover_nb.core.structs.job.external import check_command, command_words
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.solution_names import RuleName, SolutionName
from dlrover_nb.core.structs.job.spec_choices import DataFormat, Optimizer, Sync
from dlrover_nb.core.structs.job.start_from import is_path
from dlrover_nb.core.structs.job.tuning import ClusterTuning
from dlrover_nb.core.usercode import is_import
from dlrover_nb.core.yamltext import load_documents, named, to_yaml

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

T = TypeVar("T")

DEADLINE = "deadline"  # key of a moment

WRITTEN_AS = {
    "n_epoch": "epochs",
    "foreign": "external",
    "deadline_at_s": DEADLINE,
}  # field of the record -> key of the file
OLD_KEYS = {"foreign": "external"}  # of release 0.1
_UNWRITTEN = ("gpu", "gpu_hour", "device")  # where they have their defaults
_PAIRS = ("env", "labels", "annotations", "node_selector", "types")  # lists of NAME=VALUE
TUNING = "tuning"  # group of parameters that the papers leave to operators
_MOST_PLACES = 3  # that a key without its group may have
_DEFAULTS = JobSpec("unnamed")
# Keys whose values are names of ours or of installed packages: ours, and the group of the others.
_EXTENSIBLE: Mapping[str, tuple[type[StrEnum], str]] = {
    "data.format": (DataFormat, extensions.DATA_SOURCES),
    "model.optimizer": (Optimizer, extensions.OPTIMIZERS),
    "stragglers": (SolutionName, extensions.STRAGGLER_SOLUTIONS),
    "straggler_rule": (RuleName, extensions.STRAGGLER_RULES),
}


def parse_job(text: str, *, base: Path | None = None, is_dump: bool = False) -> JobSpec:
    """Read a job file.

    Parameters
    ----------
    text
        YAML.
    base
        Folder that a relative data path starts from; the working directory by default.
    is_dump
        Whether `dump_job` wrote it, which spells everything out: without ``data.guess``, its release guessed
        nothing.

    Raises
    ------
    InvalidValueError
        For malformed YAML (with line and column), an unknown key (with the nearest known one), a value of
        the wrong type or out of range (with its path), or no name.
    """
    content = load_mapping(text)
    data = content.get("data")
    if is_dump and isinstance(data, dict):
        content["data"] = {"guess": False, **data}
    return job_from(content, base=base)


def load_mapping(text: str) -> dict[str, object]:
    """Read YAML text that holds one mapping, without checking its keys; empty text is an empty mapping."""
    documents = load_documents(text)
    if len(documents) > 1:
        raise InvalidValueError(
            f"a job file holds one job, got {len(documents)} documents (separated by ---)"
        )
    content = documents[0] if documents else None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InvalidValueError(
            f"a job file holds keys and values such as `name: my-job`, got {named(content)}"
        )
    return content


def job_from(content: Mapping[str, object], *, base: Path | None = None) -> JobSpec:
    """Make a job from the content of a job file; raises as `parse_job` does."""
    if content.get("name") is None:
        raise InvalidValueError("the job has no name; add `name: my-job`")
    complete = _with_deadline(_with_model(_with_data(content, base)))
    return _record(with_start(complete, base), _DEFAULTS, "")


def dump_job(spec: JobSpec) -> str:
    """Write a job as a job file with every value spelled out, but for what a submit adds to it."""
    if spec.sync is Sync.ALLREDUCE:
        spec = replace(spec, foreign=None)  # the programs of its workers are ours
    content = _plain(spec)
    assert isinstance(content, dict)
    if len(spec.data.paths) > 1 and spec.data.format != DataFormat.OWN:
        content["data"]["path"] = list(spec.data.paths)
    if spec.deadline_at_s is not None:
        content[DEADLINE] = write_moment(spec.deadline_at_s)
    return to_yaml(content)


def cluster_tuning(settings: Iterable[tuple[str, object]]) -> ClusterTuning:
    """Return what a cluster decides, of keys by their path such as ``tuning.qore.light`` with their values.

    Raises
    ------
    InvalidValueError
        For a key that a cluster does not decide, and for a value that cannot be.
    """
    groups: dict[str, dict[str, object]] = {}
    for path, value in settings:
        if path in _places() and path not in cluster_keys():
            raise InvalidValueError(f"{path} is decided by each job; set it in the job's file")
        check_known("key", path, cluster_keys())
        _, group, key = path.split(".")
        groups.setdefault(group, {})[key] = value
    return _record(groups, ClusterTuning(), TUNING)


@cache
def cluster_keys() -> tuple[str, ...]:
    """Return the paths of all keys that a cluster decides."""
    groups = _kinds(ClusterTuning).items()
    paths = (f"{TUNING}.{group}.{key}" for group, (_, kind) in groups for key in _kinds(kind))
    return tuple(paths)


@cache
def known_keys(group: str = "") -> tuple[str, ...]:
    """Return the keys of the file, or of a group such as ``data`` or ``plan.worker``; none for no group."""
    kind = _kind_at(group)
    return tuple(_kinds(kind)) if _is_group(kind) else ()


def known_values(path: str) -> tuple[str, ...]:
    """Return the values that a key such as ``model.optimizer`` accepts; empty where any text is accepted."""
    kind = _kind_at(path)
    if path in _EXTENSIBLE:
        ours, group = _EXTENSIBLE[path]
        return (*ours, *extensions.names(group))
    if path == "model.name":
        return tuple(sorted(MODELS))
    if kind is bool:
        return ("true", "false")
    return tuple(kind) if isinstance(kind, type) and issubclass(kind, StrEnum) else ()


def default_at(path: str) -> object:
    """Return the value that a key such as ``plan.worker.count`` has where a file does not set it.

    Of a group that is off by default, it is the value once the group is there.
    """
    value: Any = _DEFAULTS
    for key in path.split("."):
        if value is None:
            value = _kind_at(path.rpartition(".")[0])()
        kind: Any = type(value)  # a record
        value = getattr(value, _kinds(kind)[key][0])
    return value


def _kind_at(path: str) -> Any:  # noqa: ANN401 - a type, a union or None: what annotations are
    """Return the type of a field by its path in the file; None where there is none."""
    kind: Any = JobSpec
    for part in filter(None, path.split(".")):
        kind = _given(_kinds(kind).get(part, ("", None))[1]) if _is_group(kind) else None
    return kind


def _is_group(kind: Any) -> bool:  # noqa: ANN401 - as above
    return is_dataclass(kind)


def _given(kind: Any) -> Any:  # noqa: ANN401 - as above
    """Return the type that a value has where it may also be None."""
    return get_args(kind)[0] if get_origin(kind) is types.UnionType else kind


def check_known(what: str, name: str, names: tuple[str, ...]) -> None:
    """Refuse a name that is not known, with the nearest one that is."""
    if name not in names:
        raise InvalidValueError(f"unknown {what} {shown(name)}; {did_you_mean(name, names)}")


def _check_key(key: str, keys: tuple[str, ...], path: str) -> None:
    """Refuse a key that a group does not have: it may be of another group, as ``label`` is of ``data``."""
    where = f"key in {path}" if path else "key"
    if key not in keys and (whole := f"{path}.{key}") in cluster_keys():
        raise InvalidValueError(
            f"{whole} is decided for all jobs of a cluster; remove it here, and start the brain with "
            f"--set {whole}=..."
        )
    if key not in keys and not by_words(key, keys):
        name_of = {place: place.rpartition(".")[2] for place in _places()}
        near = by_words(key, dict.fromkeys(name_of.values()))
        others = [place for place, name in name_of.items() if name in near]
        if 0 < len(others) <= _MOST_PLACES:
            raise InvalidValueError(f"unknown {where} {shown(key)}; did you mean {' or '.join(others)}?")
    check_known(where, key, keys)


@cache
def _places(group: str = "") -> tuple[str, ...]:
    """Return the paths of all keys and groups of a file."""
    paths = [f"{group}.{key}" if group else key for key in known_keys(group)]
    return (*paths, *(inner for path in paths for inner in _places(path)))


def data_format(paths: Sequence[str]) -> DataFormat | None:
    """Return the format of files by their extensions; None where an extension is unknown.

    A folder has that of its files, where it is one on this machine.

    Raises
    ------
    InvalidValueError
        When they are of several formats.
    """
    formats = {kind for path in paths for kind in _formats_of(path)}
    if len(formats - {None}) > 1:
        names = ", ".join(sorted(str(kind) for kind in formats if kind))
        raise InvalidValueError(
            f"the files of data.path have several formats ({names}); name those of one, such as folder/*.csv"
        )
    return next(iter(formats)) if len(formats) == 1 else None


def _formats_of(path: str) -> set[DataFormat | None]:
    try:
        if is_url(path) or not Path(path).is_dir():
            return {format_of(path)}
        within = (*Path(path).iterdir(), *Path(path).glob("*=*/**/*"))  # the latter in partitions
        kinds = {format_of(each.name) for each in within if each.name[0] not in "._"}
    except OSError:  # the nodes may see it
        return {None}
    return kinds - {None} or {None}


def full_path(path: str, base: Path) -> str:
    """Return a data path as absolute: a URL stays, a path starts from `base`."""
    return path if is_url(path) else str(base / Path(path).expanduser())


def is_code(path: str) -> bool:
    """Whether a data path names a user's own object and not a file."""
    return is_import(path) and not Path(path).exists()


def _with_data(content: Mapping[str, object], base: Path | None) -> dict[str, object]:
    """Complete the data group: its format by the extension of the file, its path made absolute."""
    data = content.get("data")
    if isinstance(data, str):
        data = {"path": data}
    paths = _paths_of(data.get("path")) if isinstance(data, dict) else ()
    if not isinstance(data, dict) or not paths:
        return dict(content)
    if is_code(paths[0]) or data.get("format") == DataFormat.OWN:
        return {**content, "data": {"format": DataFormat.OWN.value, **data}}
    full = [full_path(path, base or Path.cwd()) for path in paths]
    if "format" not in data:
        kind = data_format(full)
        if kind is None:
            check_readable(paths[0])
            formats = ", ".join(f for f in known_values("data.format") if f != DataFormat.CENSUS)
            is_folder = not is_url(full[0]) and Path(full[0]).is_dir()
            what = (
                f"no file of the folder {shown(paths[0])} has a known extension"
                if is_folder
                else (f"the extension of {shown(paths[0])} is unknown")
            )
            raise InvalidValueError(f"data.format is missing, and {what}; set it to one of {formats}")
        data = {"format": kind.value, **data}
    separator = {"separator": TAB} if data.get("separator") in {"\\t", "tab"} else {}  # as a shell has it
    return {**content, "data": {"guess": True, **data, **separator, "path": "\n".join(full)}}


def _paths_of(path: object) -> tuple[str, ...]:
    """Return the paths of some data: text with a path a line, or a list; none where it is neither."""
    if isinstance(path, str):
        return tuple(filter(None, path.split("\n")))
    if not isinstance(path, list | tuple):
        return ()
    for i, each in enumerate(path):
        if not isinstance(each, str) or not each or "\n" in each:
            raise InvalidValueError(f"data.path[{i}] must be the path of a file, got {named(each)}")
    return tuple(path)


def _with_model(content: dict[str, object]) -> dict[str, object]:
    """Complete the model group: a name such as ``package.module:Net`` is the user's own code."""
    model = content.get("model")
    if not isinstance(model, dict):
        return content
    name, code = model.get("name"), model.get("code")
    if isinstance(name, str) and is_import(name):
        return {**content, "model": {**model, "name": CUSTOM, "code": name}}
    return {**content, "model": {**model, "name": CUSTOM}} if code and name is None else content


def _with_deadline(content: dict[str, object]) -> dict[str, object]:
    """Complete the deadline: a date with a time, or a time of the day, becomes a moment."""
    given = content.get(DEADLINE)
    is_moment = given is None or isinstance(given, int | float)
    return content if is_moment else {**content, DEADLINE: read_moment(given, what=DEADLINE)}


def with_start(content: dict[str, object], base: Path | None) -> dict[str, object]:
    """Complete the group of the start: a text alone is its source; that of a folder is made absolute."""
    start = content.get("start_from")
    if isinstance(start, str | Path):
        start = {"source": str(start)}
    source = start.get("source") if isinstance(start, dict) else None
    if isinstance(start, dict) and isinstance(source, str) and is_path(source):
        start = {**start, "source": str((base or Path.cwd()) / Path(source).expanduser())}
    return content if start is None else {**content, "start_from": start}


def _record(content: Mapping[str, object], default: T, path: str) -> T:
    """Return `default` with the values of `content`."""
    given = _values(content, type(default), default, path)
    if path == "prices" and content.keys() & {"cpu_hour", "gib_hour"}:
        given.setdefault("assumed", False)  # a price that the user gives is not an assumption
    with _placed(path):
        return replace(default, **given)  # type: ignore[type-var]  # only records come here


def _new_record(content: Mapping[str, object], kind: Any, path: str) -> object:  # noqa: ANN401 - as above
    """Return a record of `content` alone."""
    given = _values(content, kind, None, path)
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    if missing := [name for name in needed if name not in given]:
        raise InvalidValueError(f"{path} needs {' and '.join(missing)}; its keys: {', '.join(_kinds(kind))}")
    with _placed(path):
        return kind(**given)


def _values(content: Mapping[str, object], kind: type, default: object, path: str) -> dict[str, Any]:
    """Return the fields that `content` sets; a group that is set in part begins from that of `default`."""
    kinds, given = _kinds(kind), {}
    for written, value in content.items():
        key = written if path else OLD_KEYS.get(str(written), written)
        _check_key(str(key), tuple(kinds), path)
        name, field_kind = kinds[str(key)]
        if name in given:
            raise InvalidValueError(f"{key} is given twice, once as {written}; remove one of them")
        place = f"{path}.{key}" if path else str(key)
        given[name] = _value(value, field_kind, getattr(default, name, None), place)
    return given


@contextmanager
def _placed(path: str) -> Iterator[None]:
    """Add the path in the file to the error of a record."""
    try:
        yield
    except InvalidValueError as error:
        raise InvalidValueError(f"{path}: {error}" if path else str(error)) from error


@cache
def _kinds(record: Hashable) -> dict[str, tuple[str, type]]:
    """Return key -> (field, type) of a record."""
    assert isinstance(record, type)
    hints = get_type_hints(record)
    return {WRITTEN_AS.get(f.name, f.name): (f.name, hints[f.name]) for f in fields(record)}


def _value(value: object, kind: type, default: object, path: str) -> object:
    """Return `value` as the type that a field has."""
    if is_dataclass(kind):
        if value is None and default is not None:
            return default
        if not isinstance(value, dict):
            raise InvalidValueError(
                f"{path} must be a group of {', '.join(_kinds(kind))}, got {named(value)}"
            )
        return _new_record(value, kind, path) if default is None else _record(value, default, path)
    if get_origin(kind) is types.UnionType:  # of one kind and None
        return None if value is None else _value(value, _given(kind), None, path)
    if get_origin(kind) is tuple:
        items = _items(value, path)
        item_kind = get_args(kind)[0]
        return tuple(_value(item, item_kind, None, f"{path}[{i}]") for i, item in enumerate(items))
    if path in _EXTENSIBLE:
        return _extensible(value, path)
    return _word(value, kind, path) if issubclass(kind, StrEnum) else _scalar(value, kind, path)


def _items(value: object, path: str) -> list[object]:
    """Return the items of a list, also of what other tools write for it: a command line, or a mapping."""
    key = path.rpartition(".")[2]
    if key == "command" and isinstance(value, str):
        return [*command_words(value)]
    if key in _PAIRS and isinstance(value, dict):
        return [f"{name}={_scalar(each, str, f'{path}.{name}')}" for name, each in value.items()]
    if path == "data.sequences" and isinstance(value, dict):
        return [_sequence(name, each, path) for name, each in value.items()]
    items: list[object] = [*value] if isinstance(value, list | tuple) else [value]
    if key == "command":
        check_command(items)
    if path == "data.sequences":
        return [{"column": each} if isinstance(each, str) else each for each in items]
    return items


def _sequence(name: object, keys: object, path: str) -> dict[object, object]:
    """Return the group of a sequence that is written as the keys of its column."""
    if keys is not None and not isinstance(keys, dict):
        raise InvalidValueError(
            f"{path}.{name} must be a group such as {{length: 50}}, or nothing, got {named(keys)}"
        )
    return {"column": name, **(keys or {})}


def _extensible(value: object, path: str) -> str:
    """Return a name; installed packages are asked only for one that is none of ours."""
    ours, _ = _EXTENSIBLE[path]
    if isinstance(value, str) and value in set(ours):
        return ours(value)
    names = known_values(path)
    if not isinstance(value, str):
        raise InvalidValueError(f"{path} must be one of {', '.join(names)}, got {named(value)}")
    check_known(path, value, names)
    return value


def _word(value: object, kind: type[StrEnum], path: str) -> StrEnum:
    if not isinstance(value, str):
        raise InvalidValueError(f"{path} must be one of {', '.join(kind)}, got {named(value)}")
    check_known(path, value, tuple(kind))
    return kind(value)


def _scalar(value: object, kind: type, path: str) -> object:
    match value:
        case bool() if kind is bool:
            return value
        case int() if kind is int and not isinstance(value, bool):
            return value
        case str() if kind is str:
            return value
        case int() | float() | str() if kind is float and not isinstance(value, bool):
            if (number := _number(value)) is not None:  # text too: YAML reads 1e-3 as text
                return number
    raise InvalidValueError(f"{path} must be {_KINDS[kind]}, got {named(value)}")


_KINDS = types.MappingProxyType(
    {bool: "true or false", int: "a whole number", float: "a number", str: "text (in quotes where YAML asks)"}
)


def _number(value: float | str) -> float | None:
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _plain(value: object) -> object:
    """Return a record as what YAML can write."""
    if is_dataclass(value):
        written = ((f, getattr(value, f.name)) for f in fields(value))
        return {
            WRITTEN_AS.get(f.name, f.name): _plain(each)
            for f, each in written
            if f.name not in _UNWRITTEN or each != f.default
        }
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.value if isinstance(value, StrEnum) else value
