"""A change of plan as a colleague would say it: what to do, how fast it is then, and what it costs.

Two significant digits, factors for speed, money per hour: enough to decide by. The exact numbers stand below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.pareto.reasons import count_word
from dlrover_nb.core.structs.plan.resources import Role, diff
from dlrover_nb.widgets import units

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.candidates import Prediction
    from dlrover_nb.core.structs.plan.resources import ResourcePlan, RoleChange

NAMES = {Role.WORKER: "worker", Role.PS: "parameter server"}
IN_CENTS = frozenset({"USD", "EUR", "CAD", "AUD"})
ALIKE = 0.03  # of the speed, or of the price: less is the same


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb as an order, and as what is being done or tried."""

    order: str
    doing: str


ADD, TAKE, GIVE = Verb("add", "adding"), Verb("take", "taking"), Verb("give", "giving")


@dataclass(frozen=True, slots=True)
class Move:
    """What a change of plan does: verbs with the words after them."""

    parts: tuple[tuple[Verb, str], ...]

    @property
    def order(self) -> str:
        """As an order: ``add one worker``."""
        return and_list([f"{verb.order} {words}" for verb, words in self.parts])

    @property
    def doing(self) -> str:
        """As what goes on: ``adding one worker``."""
        return and_list([f"{verb.doing} {words}" for verb, words in self.parts])


def move(before: ResourcePlan, after: ResourcePlan) -> Move:
    """Return what a change of plan does."""
    changes = diff(before, after).changes
    more = [counted(c.added, c.role) for c in changes if c.added > 0]
    fewer = [counted(-c.added, c.role) for c in changes if c.added < 0]
    sizes = [_size_words(c) for c in changes if c.replaces_nodes]
    parts = ((ADD, and_list(more)), (TAKE, f"{and_list(fewer)} away"), (GIVE, and_list(sizes)))
    return Move(tuple(part for part, words in zip(parts, (more, fewer, sizes), strict=True) if words))


def counted(n: int, role: Role) -> str:
    """Return a number of nodes: ``one worker``, ``12 parameter servers``."""
    return f"{count_word(n)} {NAMES[role]}{'s' if n != 1 else ''}"


def cores(cpu: float) -> str:
    """Return cores as words: ``1 core``, ``0.5 cores``."""
    return f"{cpu:g} core{'s' if cpu != 1 else ''}"


def _size_words(change: RoleChange) -> str:
    """Return what nodes of one role get: ``each worker 1 core (0.5 now)``."""
    before, after, parts = change.before, change.after, []
    if before.cpu != after.cpu:
        parts.append(f"{cores(after.cpu)} ({before.cpu:g} now)")
    if before.memory_mib != after.memory_mib:
        more = after.memory_mib - before.memory_mib
        parts.append(f"{units.memory(abs(more))} {'more' if more > 0 else 'less'} memory")
    each = "each" if after.count != 1 else "the"
    return f"{each} {NAMES[change.role]} {' and '.join(parts)}"


# speed


def factor(value: float) -> str:
    """Return a factor with two significant digits: ``0.95``, ``1.5``, ``12``."""
    if value >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 0.995 else f"{value:.2g}"


def times(value: float) -> str:
    """Return how fast it is then, over now: ``about 1.5 times as fast``."""
    if abs(value - 1) < ALIKE:
        return "as fast as now"
    if 1.9 <= value <= 2.1:
        return "about twice as fast"
    return f"about {factor(value)} times as fast"


def band(new: Prediction, now: Prediction) -> str:
    """Return between which factors the speed lies, with nine chances in ten: ``1.2 to 1.7``."""
    return factors(new.surely_over(now), new.possibly_over(now))


def factors(least: float, most: float) -> str:
    """Return two factors as a band."""
    return f"{factor(least)} to {factor(most)}"


# money


def price_words(new: float | None, now: float | None, currency: str) -> str:
    """Return what a plan costs more or less an hour: ``for 3 cents an hour more``; empty: not known."""
    if new is None or now is None:
        return ""
    more = new - now
    if abs(more) < ALIKE * max(now, 1e-9):
        return "at the same price"
    return f"for {money(abs(more), currency)} an hour {'more' if more > 0 else 'less'}"


def money(amount: float, currency: str) -> str:
    """Return an amount as it is spoken: ``3 cents``, ``1.2 USD``."""
    if currency in IN_CENTS and amount < 1:
        cents = 100 * amount
        text = f"{cents:.0f}" if cents >= 9.5 else f"{cents:.2g}"
        return f"{text} cent{'s' if text != '1' else ''}"
    return f"{amount:,.0f} {currency}" if amount >= 100 else f"{amount:.2g} {currency}"
