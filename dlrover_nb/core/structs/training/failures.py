"""Errors of programs on nodes, and how often each has ended one.

The text of an error differs each time: it names rows, addresses, processes and temporary files. What makes
two of them the same is their kind and place, so these are compared after all such parts are removed. The
text in quotes is removed too: it is nearly always a value of the data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from dlrover_nb.core.basics.redaction import redact
from dlrover_nb.core.structs.plan.resources import Role

HOUR_S, DAY_S = 3600.0, 86_400.0
MOST_KINDS = 20  # that are counted at a time; the one seen longest ago makes room
_MOST_NODES = 5  # that are named
_MOST_LETTERS = 300
_VARYING = (
    (re.compile(r"(?:/private)?/(?:var/tmp|tmp|dev/shm)/[^\s'\",:;)\]]+"), "PATH"),
    (re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`"), "TEXT"),
    (re.compile(r"\b0[xX][0-9a-fA-F]+\b|\b(?=[a-f]*\d)[0-9a-f]{8,}\b"), "N"),
    (re.compile(r"[-+]?\d+(?:[.,_]\d+)*(?:[eE][-+]?\d+)?"), "N"),
    (re.compile(r"N(?:[\s,x]+N)+"), "N"),
    (re.compile(r"\s+"), " "),
)


@dataclass(frozen=True, slots=True)
class ProgramError:
    """An error that ended a program: an exception, a fatal signal, or an exit code.

    Parameters
    ----------
    text
        Its line, ``ValueError: row 3 is broken``, with a placeholder for each credential in it.
    place
        Where it was raised: ``rows.py:12 in read``; empty: unknown.
    """

    text: str
    place: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", redact(self.text))

    @property
    def key(self) -> str:
        """What all errors of this kind and place have in common."""
        return f"{normalized(self.text)} @ {self.place}"

    def __str__(self) -> str:
        return f"{self.text} ({self.place})" if self.place else self.text


@dataclass(frozen=True, slots=True)
class CountedError:
    """How often an error has ended nodes of a role.

    Parameters
    ----------
    role, key
        Of the nodes; of the error.
    last
        The last error of this kind.
    hours
        (time of the first one, how many) of each hour in which it came, within a day, the oldest first.
    last_at_s
        Time of the last one.
    nodes
        The first node, and the last ones.
    """

    role: Role
    key: str
    last: ProgramError
    hours: tuple[tuple[float, int], ...]
    last_at_s: float
    nodes: tuple[str, ...]

    @property
    def n(self) -> int:
        """How many came within a day before the last one."""
        return sum(n for _, n in self.hours)

    @property
    def first_at_s(self) -> float:
        """Time of the first one within that day."""
        return self.hours[0][0]

    def again(self, error: ProgramError, node: str, at_s: float) -> CountedError:
        """Return the count with one more."""
        hours = [hour for hour in self.hours if hour[0] > at_s - DAY_S]
        if hours and at_s < hours[-1][0] + HOUR_S:
            hours[-1] = hours[-1][0], hours[-1][1] + 1
        else:
            hours.append((at_s, 1))
        nodes = (*self.nodes, node)
        if len(nodes) > _MOST_NODES:
            nodes = nodes[0], *nodes[2:]
        return replace(self, last=error, hours=tuple(hours), last_at_s=at_s, nodes=nodes)


def normalized(text: str) -> str:
    """Return a text without what differs each time: numbers, addresses, quoted text, temporary paths."""
    for pattern, instead in _VARYING:
        text = pattern.sub(instead, text)
    return text.strip()[:_MOST_LETTERS]


def counted(
    errors: tuple[CountedError, ...], error: ProgramError, *, role: Role, node: str, at_s: float
) -> tuple[CountedError, ...]:
    """Return the counts with one more error, which is last in them."""
    same = [each for each in errors if (each.role, each.key) == (role, error.key)]
    before = same[0] if same else CountedError(role, error.key, error, (), at_s, ())
    others = [each for each in errors if each is not before and each.last_at_s > at_s - DAY_S]
    return (*others, before.again(error, node, at_s))[-MOST_KINDS:]
