"""A figure of each living node's last report.

No report says that a node was lost, and nodes that replace others have new names. But a plan says how many
nodes there are: where more than those have reported, the one that was silent for longest is lost. Rejected:
to drop nodes by the age of their reports, as after a pause of all nodes the first one would be alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class LastReports:
    """A figure of each node, of as many nodes as a plan has."""

    def __init__(self) -> None:
        self._figures: dict[str, float] = {}
        self._heard_s: dict[str, float] = {}

    def add(self, node: str, figure: float, at_s: float, *, n_node: int) -> None:
        """Replace a node's figure; beyond `n_node` nodes forget those that were silent for longest."""
        self._figures[node], self._heard_s[node] = figure, at_s
        while len(self._figures) > max(n_node, 1):
            lost = min(self._heard_s, key=self._heard_s.__getitem__)
            del self._figures[lost], self._heard_s[lost]

    @property
    def figures(self) -> Mapping[str, float]:
        """The figure of each node, in the order of their first reports."""
        return self._figures
