"""YAML as this package writes and reads it: for people to read and edit, without loss.

An error is one line with line and column. Duplicate keys are refused; YAML itself would silently keep the
last one. Whole numbers are decimal: YAML 1.1 reads 1:30 as 90, 0x10 as 16 and 010 as 8, which no user means
in a job; they stay texts, and are refused where a number is expected.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

from dlrover_nb.core.basics.redaction import redact
from dlrover_nb.core.errors import InvalidValueError

MOST_MERGED = 10_000  # values in merged groups; a job file has some tens
MOST_VALUES = 1_000_000  # a thousand pods have a tenth of it; a few lines of aliases can have any number


def to_yaml(*documents: object, inline: bool = False) -> str:
    """Write documents as one YAML text, fields in their given order, the same text for the same documents.

    Parameters
    ----------
    inline
        Whether lists and groups of plain values are written in one line.
    """
    return yaml.dump_all(
        documents,
        Dumper=_Plain,
        sort_keys=False,
        allow_unicode=True,
        width=110,
        default_flow_style=None if inline else False,
    )


class _Plain(yaml.SafeDumper):
    """Writer without anchors: an export is read by people, and edited."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the base's signature
        """Repeat values in full."""
        return True


_ODD = re.compile("[\x85\u2028\u2029\ufeff]")
_OTHER = re.compile(r"[yYnN]|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*")  # a truth value, a time in other readers


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Quote what a reader of YAML 1.1, 1.2 or Go takes for another type, or for other text.

    PyYAML quotes what it would take for another type itself, by YAML 1.1; unusual line breaks it would read
    as blanks. Several lines are written as they are, where YAML allows it.
    """
    style: str | None = None
    if _ODD.search(text):
        style = '"'
    elif "\n" in text.rstrip("\n"):
        style = "|"
    elif _OTHER.fullmatch(text) or _is_number(text):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _is_number(text: str) -> bool:
    """Whether some reader takes a text for a number: 1e-3, 0o17, 6e12345 are texts to YAML 1.1 alone."""
    digits = text.replace("_", "")
    for read in (float, lambda each: int(each, 0)):
        try:
            read(digits)
        except ValueError:
            continue
        return True
    return False


_Plain.add_representer(str, _text)


def load_documents(text: str) -> list[Any]:
    """Read every document of a YAML text; empty ones are None.

    Raises
    ------
    InvalidValueError
        When it is malformed; the text names line and column.
    """
    try:
        documents = list(yaml.load_all(text, _UniqueKeys))
        n_value = _n_value(documents, {})
    except yaml.YAMLError as error:
        raise InvalidValueError(
            f"malformed YAML{_place(error)}: {_problem(error)}{_near(error, text)}"
        ) from error
    except (ValueError, RecursionError) as error:  # a date that is none, a thousand brackets
        raise InvalidValueError(f"malformed YAML: {error}") from error
    if n_value > MOST_VALUES:
        raise InvalidValueError(
            f"YAML must hold at most {MOST_VALUES:,} values, got more: its aliases contain themselves"
        )
    return documents


def named(value: object) -> str:
    """Describe an unexpected value for an error message, without credentials."""
    match value:
        case None:
            return "nothing"
        case dict():
            return "a group"
        case list():
            return "a list"
    return redact(repr(value))[:60]


def _n_value(value: object, counts: dict[int, float]) -> float:
    """Count the values, an alias each time that it occurs; inf if it contains itself."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if parts is None:
        return 1
    if id(value) not in counts:
        counts[id(value)] = math.inf  # until it is counted
        counts[id(value)] = 1 + sum(_n_value(part, counts) for part in parts)
    return counts[id(value)]


class _UniqueKeys(yaml.SafeLoader):
    """YAML's safe reader that refuses duplicate keys, and groups that merge each other endlessly."""

    n_merged = 0

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge groups (``<<``); lines that merge each other twice double the values each."""
        super().flatten_mapping(node)
        self.n_merged += len(node.value)
        if self.n_merged > MOST_MERGED:
            raise yaml.MarkedYAMLError(
                problem=f"at most {MOST_MERGED:,} values may be merged", problem_mark=node.start_mark
            )

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:  # noqa: FBT001, FBT002 - the base's signature
        keys = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # no key of ours; the base refuses what cannot be one
            if key.value in keys:
                raise yaml.MarkedYAMLError(
                    problem=f"duplicate key {key.value!r}", problem_mark=key.start_mark
                )
            keys.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Return how plain texts become values: as YAML 1.1, but numbers in decimals alone."""
    numbers = {"tag:yaml.org,2002:int": _WHOLE, "tag:yaml.org,2002:float": _DECIMAL}
    return {
        letter: [(tag, numbers.get(tag, pattern)) for tag, pattern in pairs]
        for letter, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)\Z")
_DECIMAL = re.compile(
    r"(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
)
_UniqueKeys.yaml_implicit_resolvers = _resolvers()


def _place(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"


def _near(error: yaml.YAMLError, text: str) -> str:
    """Return the faulty text; of a truncated file, its last line."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    lines = [line.strip() for line in text.splitlines()[: mark.line + 1]] if mark else []
    near = next((line for line in reversed(lines) if line), "")
    return f", near `{redact(near)[:60]}`" if near else ""


def _problem(error: yaml.YAMLError) -> str:
    text = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).splitlines()[0]
    context = getattr(error, "context", None)
    return f"{context}: {text}" if context else str(text)
