"""Keep what imports make out of garbage collections: it lives as long as the process does.

torch alone makes half a million objects that a collector tracks. Python collects several times while they are
made and walks through all of them again as the interpreter ends: a worker that starts and stops takes 1.6 s
of CPU time with that and 1.0 s without, a parameter server 0.26 and 0.21 s. Frozen objects are in no
collection, so those of training find little to walk through.

Leaving by `os._exit`, which skips the end of the interpreter, saves no more than that. It was rejected, since
user's code may register functions for the end of its process, and C libraries write their buffers then.
"""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

RARELY = 100  # collections of younger objects before one of all, in which a master answers no one


def collect_rarely() -> None:
    """Let a master that has imported all collect nothing of that any more, and the rest seldom.

    With a thousand nodes a collection of all objects takes 50 ms, and one came every three seconds.
    """
    gc.freeze()
    youngest, younger, _ = gc.get_threshold()
    gc.set_threshold(youngest, younger, RARELY)


@contextlib.contextmanager
def lasting_imports() -> Iterator[None]:
    """Collect nothing while this block imports, and nothing that there is at its end ever after."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
