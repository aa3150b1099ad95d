"""Let a process of the peers' `hogwild.py` or `single.py` multiply as our workers do.

They stand for what the machine can do, so they get the faster library too: on the path of Python, this module
is loaded in all of their processes. `ps_throughput.py` puts it there.
"""

from __future__ import annotations

from contextlib import ExitStack

from dlrover_nb.core.models.matmul import fast_matmul

_LASTING = ExitStack()
_LASTING.enter_context(fast_matmul())
