"""Bodies that are no command: those of commands are the records of `core.commands.requests`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from dlrover_nb.core.commands.fields import PlanBody, Why

MOST_PLANS = 20  # of one question


class WeighBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Plans whose effect is asked for; nothing is changed."""

    plans: Annotated[tuple[PlanBody, ...], Meta(min_length=1, max_length=MOST_PLANS)]


class ReasonBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What needs nothing but its reason."""

    why: Why = ""
