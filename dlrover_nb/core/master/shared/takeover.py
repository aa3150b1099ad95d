"""What a master that continues a job says of its nodes: which run, which wait, and that there are none."""

from __future__ import annotations


def takeover_words(n_running: int, n_waiting: int, *, has_begun: bool) -> str:
    """Return for people what a restarted master finds.

    Parameters
    ----------
    n_running, n_waiting
        Nodes that have come up, and nodes that were ordered and have not.
    has_begun
        Whether any node was ever ordered.
    """
    if n_running:
        more = f", and {n_waiting} more wait{'s' * (n_waiting == 1)} to start" if n_waiting else ""
        return f"the master restarted and takes over {_nodes(n_running)}{more}"
    if n_waiting:
        return f"the master restarted; {_nodes(n_waiting)} still wait{'s' * (n_waiting == 1)} to start"
    if has_begun:
        return "the master restarted, and nodes are started again"
    return "the master restarted before any node had started"


def _nodes(n: int) -> str:
    return f"{n} node{'s' * (n != 1)}"
