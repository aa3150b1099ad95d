"""How long a client must wait before the next try to sign in, by name and by address.

Tries are counted when they begin, so that many at once gain nothing, and forgotten after a success. The first
few are free. Then each doubles the wait: per name up to a minute, so that no person is locked out for long by
strangers who try their name, per address up to a quarter of an hour. Memory is bounded: the tries that are
longest ago are forgotten first. A lock of an account after so many tries was rejected: whoever knows a name
could use it to keep a person out.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

N_FREE = 4
FORGOTTEN_S = 3600.0  # after a last try
MOST_KNOWN = 10_000
NAME_S, ADDRESS_S = 60.0, 900.0  # the longest waits


@dataclass(frozen=True, slots=True)
class Tries:
    """Tries in a row without a success, and when the last one was."""

    n: int = 0
    at_s: float = 0.0

    def wait_s(self, now_s: float, longest_s: float) -> float:
        """Return for how long no further try is taken; 0: one is."""
        if self.n < N_FREE:
            return 0.0
        pause_s = min(2.0 ** min(self.n - N_FREE, 30), longest_s)
        return max(0.0, self.at_s + pause_s - now_s)


class Throttle:
    """Counts tries; for one thread. `now_s` passes monotonically."""

    def __init__(self, most_known: int = MOST_KNOWN) -> None:
        self._tries: OrderedDict[tuple[str, str], Tries] = OrderedDict()
        self._most = most_known

    def __len__(self) -> int:
        return len(self._tries)

    def begin(self, name: str, address: str, now_s: float) -> float:
        """Count a try and return 0, or return the seconds to wait where none may be made now."""
        keys = {("name", name.casefold()): NAME_S, ("address", address): ADDRESS_S}
        wait_s = max(self._of(key, now_s).wait_s(now_s, longest) for key, longest in keys.items())
        if wait_s > 0:
            return wait_s
        for key in keys:
            self._tries[key] = Tries(self._of(key, now_s).n + 1, now_s)
            self._tries.move_to_end(key)
        while len(self._tries) > self._most:
            self._tries.popitem(last=False)
        return 0.0

    def succeeded(self, name: str, address: str) -> None:
        """Forget the tries of a person who has signed in, but of the address this one alone.

        Else a person with an account could try the passwords of others, and sign in between.
        """
        self._tries.pop(("name", name.casefold()), None)
        key = ("address", address)
        if key in self._tries:
            self._tries[key] = replace(self._tries[key], n=self._tries[key].n - 1)

    def _of(self, key: tuple[str, str], now_s: float) -> Tries:
        tries = self._tries.get(key, Tries())
        return tries if now_s - tries.at_s < FORGOTTEN_S else Tries()
