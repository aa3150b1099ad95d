"""Run `selection.py`: weighted greedy selection against the exact optimum, and on ten thousand jobs.

    python benchmarks/select.py [--instances 60 --seed 0]

This folder comes first on the path of every script in it, and the standard library has a module of this name
(subprocess and zmq need it). Imported by that name, this file therefore provides the real one.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

if __name__ == "__main__":
    from selection import main

    main()
else:
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib may not be loaded yet
    spec = PathFinder.find_spec("select", [f for f in sys.path if os.path.abspath(f) != here])  # noqa: PTH100
    if spec is None or spec.loader is None:
        raise ImportError("the standard library's select was not found on the path; is Python complete?")
    sys.modules["select"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["select"])
