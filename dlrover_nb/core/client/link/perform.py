"""Carry out a command by a link to the job's master: the one place where a command becomes a call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.decisions.commands import Action

if TYPE_CHECKING:
    from dlrover_nb.core.client.link.protocols import MasterLink
    from dlrover_nb.core.structs.decisions.commands import Command
    from dlrover_nb.core.structs.decisions.decisions import Decision


def perform(link: MasterLink, command: Command, by: str) -> Decision | None:
    """Carry out a command in a person's name; return the decision made, if it is one.

    Raises
    ------
    InvalidValueError
        When it is none about a running job: submit and delete are the cluster's.
    """
    if command.decision is not None:
        return link.decide(replace(command.decision, by=by))
    if command.action is Action.STOP:
        link.stop(by, command.why)
        return None
    choice = command.shard or command.batches or command.finish
    if choice is None:
        raise InvalidValueError(
            f"{command.action} must be a command about a running job; ask the cluster for it"
        )
    link.choose(replace(choice, by=by))
    return None
