"""What an answer is made of: values with units, and sentences that only render them.

A sentence's own words contain no digit, so each number that a person reads is a `Value` of the answer's
record, or stands in a `Quote`: the name of a plan, a proposal or a decision, or words that a person wrote.
Programs read the values, and need not parse the words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.percents import chance_words, fraction, percent, signed_fraction, signed_percent
from dlrover_nb.core.structs.plan.deadline import span_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dlrover_nb.core.why.catalogue import Question

_DIGIT = re.compile(r"\d")


class Unit(StrEnum):
    """The unit of a value; shares, chances and changes are parts of one."""

    SPEED = "samples/s"
    MORE_SPEED = "more samples/s"
    CHANGE = "change"
    SHARE = "share"
    CHANCE = "probability"
    TIME = "s"
    MONEY = "money per hour"
    MORE_MONEY = "more money per hour"
    MORE_CORES = "more cores, 8 GiB as one"
    MIB = "MiB"
    AUC = "change of AUC"
    AUC_PART = "of AUC"
    COUNT = "count"
    OTHER = "as named"  # of a break-even, which names its own


@dataclass(frozen=True, slots=True)
class Value:
    """A number of an answer.

    Parameters
    ----------
    name
        Of the number in its sentence.
    note
        What follows it: a currency and whether its prices are assumed, or the unit of a break-even.
    """

    name: str
    amount: float
    unit: Unit
    note: str = ""

    @property
    def text(self) -> str:
        """The number as a person reads it."""
        number = _TEXTS[self.unit](self.amount)
        return f"{number} {self.note}" if self.note else number


def _number(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}"


def _time(seconds: float) -> str:
    if 0 < seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    return span_words(seconds)


def _signed(x: float) -> str:
    return f"{'-' if x < 0 else '+'}{_number(abs(x))} samples/s"


_TEXTS: Mapping[Unit, Callable[[float], str]] = {
    Unit.SPEED: lambda x: f"{_number(x)} samples/s",
    Unit.MORE_SPEED: _signed,
    Unit.CHANGE: lambda x: signed_percent(x, 1),
    Unit.SHARE: percent,
    Unit.CHANCE: chance_words,
    Unit.TIME: _time,
    Unit.MONEY: lambda x: f"{x:,.4g}",
    Unit.MORE_MONEY: lambda x: f"{x + 0.0:+,.4g}",
    Unit.MORE_CORES: lambda x: f"{x + 0.0:+,.4g} cores",
    Unit.MIB: lambda x: f"{x:,.0f} MiB",
    Unit.AUC: signed_fraction,
    Unit.AUC_PART: fraction,
    Unit.COUNT: lambda x: f"{x:,.0f}",
    Unit.OTHER: _number,
}


@dataclass(frozen=True, slots=True)
class Quote:
    """Words of an answer that are not its own: a name, a plan, a change, or a reason that was given."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words around values; `template` names each in braces, and has no number of its own."""

    template: str
    items: tuple[Value | Quote, ...] = ()

    def __post_init__(self) -> None:
        assert not _DIGIT.search(self.template), self.template

    @property
    def words(self) -> str:
        """The sentence."""
        return self.template.format_map({item.name: item.text for item in self.items})


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question about a plan.

    Parameters
    ----------
    is_known
        Whether it could be answered; else its words say what is missing.
    """

    question: Question
    sentences: tuple[Sentence, ...]
    is_known: bool = True

    def __post_init__(self) -> None:
        names = [value.name for value in self.values]
        assert self.sentences, self.question
        assert len(names) == len(set(names)), names

    @property
    def words(self) -> str:
        """The answer, in a few sentences."""
        return " ".join(sentence.words for sentence in self.sentences)

    @property
    def values(self) -> tuple[Value, ...]:
        """The numbers of all its sentences."""
        items = (item for sentence in self.sentences for item in sentence.items)
        return tuple(item for item in items if isinstance(item, Value))


def say(template: str, *items: Value | Quote) -> Sentence:
    """Return a sentence, with those of the values that it names."""
    return Sentence(template, tuple(item for item in items if f"{{{item.name}}}" in template))
