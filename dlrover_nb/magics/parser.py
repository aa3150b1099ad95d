"""The parser of one verb, and the types of its arguments; an error is one line with the accepted values."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import yaml

from dlrover_nb.core.basics.nearest import did_you_mean
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Parser(argparse.ArgumentParser):
    """Parser of one verb that raises `InvalidValueError` instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Raise the error as one line."""
        command, verb, *_ = self.prog.split()
        raise InvalidValueError(f"{message.removeprefix('argument ')}; see {command} help {verb}")

    def indented_usage(self) -> str:
        """Return how it is used, without a heading."""
        usage = self.format_usage().rstrip()
        return "\n".join(f"  {line[len('usage: ') :]}" for line in usage.splitlines())

    def section(self, heading: str, without: tuple[str, ...] = ()) -> str:
        """Return the help of its arguments without the flags named; empty: there are no others."""
        formatter = self._get_formatter()
        formatter.start_section(f"options of {heading}")
        formatter.add_arguments(a for a in self._actions if not set(a.option_strings) & set(without))
        formatter.end_section()
        return formatter.format_help().strip()

    @property
    def flags(self) -> tuple[str, ...]:
        """Return all long flags."""
        return tuple(s for action in self._actions for s in action.option_strings if s.startswith("--"))

    def action_of(self, flag: str) -> argparse.Action | None:
        """Return the action of a flag that takes a value; None where the flag is unknown or takes none."""
        action = self._option_string_actions.get(flag)
        return None if action is None or action.nargs == 0 else action

    @property
    def positionals(self) -> tuple[argparse.Action, ...]:
        """Return the actions of the positional arguments."""
        return tuple(action for action in self._actions if not action.option_strings)


class HelpFormatter(argparse.HelpFormatter):
    """Formatter that adds to each flag what its missing value stands for, unless its text says so.

    Parameters
    ----------
    default_of
        As of a `Verb`.
    """

    def __init__(self, prog: str, default_of: Callable[[str], object], width: int) -> None:
        super().__init__(prog, max_help_position=30, width=width)
        self._default_of = default_of

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        if action.nargs == 0 or "default:" in text:
            return text
        value = action.default
        if value is None and action.option_strings:
            value = self._default_of(action.dest)
        return text if value in (None, "", (), []) else f"{text}; default: {_as_typed(value)}"


def _as_typed(value: object) -> str:
    """Return a value as it is typed behind a flag."""
    match value:
        case bool():
            return "yes" if value else "no"
        case tuple() | list():
            return ",".join(_as_typed(each) for each in value)
        case float():
            return f"{value:g}"
    return str(value)


def whole(text: str) -> int:
    """Return a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from None


def worker_size(text: str) -> tuple[str, int]:
    """Return a worker's name and batch size, of ``worker-0=256``."""
    name, size = _named(text, "WORKER=N", "worker-0=256")
    return name, whole(size)


@dataclass(frozen=True, slots=True)
class Pairs:
    """The type of an argument with a value for each of some nodes, such as ``worker-0=256,worker-1=128``.

    Parameters
    ----------
    shape
        How a pair looks, for messages: ``WORKER=N``.
    about
        What the argument means, which ends with an example.
    value
        Type of the values.
    """

    shape: str
    about: str
    value: Callable[[str], object]

    def __call__(self, text: str) -> dict[str, object]:
        """Return the values by node."""
        example = self.about.rpartition("such as ")[2].partition(",")[0].rstrip(".")
        pairs = (_named(part, self.shape.removesuffix(",..."), example) for part in columns(text))
        return {name: self.value(value) for name, value in pairs}


def _named(text: str, shape: str, example: str) -> tuple[str, str]:
    """Return a node's name and what stands after it."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"expected {shape} such as {example}, got {text!r}")
    return name, value


def money_or_off(text: str) -> float | None:
    """Return an amount of money; None of ``off``, for no limit."""
    if text == "off":
        return None
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be an amount of money, or off, got {text!r}") from None


def number(text: str) -> float:
    """Return a number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}") from None


@dataclass(frozen=True, slots=True)
class OneOf:
    """The type of an argument with a fixed set of values, which completion offers.

    Parameters
    ----------
    what
        What the value is, for messages.
    names
        The accepted values.
    added
        Returns those that installed packages add; asked only where a value is not among `names`.
    """

    what: str
    names: tuple[str, ...]
    added: Callable[[], Iterable[str]] = tuple

    def __call__(self, text: str) -> str:
        """Return the value, or refuse it with the nearest accepted one."""
        if text not in self.names and text not in self.added():
            raise argparse.ArgumentTypeError(
                f"unknown {self.what} {text!r}; {did_you_mean(text, self.names)}"
            )
        return text


def one_of(what: str, names: Iterable[str], added: Callable[[], Iterable[str]] = tuple) -> OneOf:
    """Return the type of an argument that is one of `names`."""
    return OneOf(what, tuple(str(word) for word in names), added)


def columns(text: str) -> list[str]:
    """Return the items of a comma-separated list."""
    return [part.strip() for part in text.split(",") if part.strip()]


def sequences(text: str) -> object:
    """Return columns with their keys, of a mapping in one line of YAML; its braces may be left out."""
    try:
        return yaml.safe_load(text if text.strip().startswith("{") else f"{{{text}}}")
    except (yaml.YAMLError, ValueError) as error:
        raise argparse.ArgumentTypeError(
            f"expected columns such as tags, history: {{length: 20, separator: '|'}}, got {text}"
        ) from error


def setting(text: str) -> tuple[str, object]:
    """Return the path of a key and its value, of ``KEY=VALUE``."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE such as model.hash_size=4096, got {text!r}")
    try:
        return key.strip(), yaml.safe_load(value)
    except (yaml.YAMLError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"malformed value in {text!r}") from error


def widths(text: str) -> list[int]:
    """Return the whole numbers of a comma-separated list."""
    return [whole(part) for part in columns(text)]


def yes_no(text: str) -> bool:
    """Return a yes or no as a bool."""
    answers = {"yes": True, "no": False, "true": True, "false": False}
    if text not in answers:
        raise argparse.ArgumentTypeError(f"must be yes or no, got {text!r}")
    return answers[text]
