"""A node whose sealed sessions do not encrypt, and the same for a worker: what encryption costs.

For `ps_throughput.py --tcp` alone, which compares the two side by side. Messages are numbered as in a sealed
session and are else as they were.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.runtime.exchange import sealed
from dlrover_nb.core.runtime.node.node import main

if TYPE_CHECKING:
    from collections.abc import Sequence


class Unsealed:
    """Has the methods of `sealed.Seal`."""

    copies = False

    def __init__(self, _key: bytes, *, sends: int, receives: int) -> None:
        self._directions = sends, receives

    def seal(self, frames: Sequence[Any]) -> list[Any]:
        return [bytes(8), *frames]

    def open(self, message: Sequence[Any]) -> list[Any]:
        return list(message[1:])


def unseal() -> None:
    """Let this process encrypt nothing."""
    sealed.SEALS = dict.fromkeys(sealed.SEALS, Unsealed)  # type: ignore[arg-type]  # that is the point


if __name__ == "__main__":
    unseal()
    sys.exit(main(sys.argv[1:]))
