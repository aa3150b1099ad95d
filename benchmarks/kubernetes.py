"""Costs of jobs on Kubernetes: time to first step and to scale-out, and requests to the API server.

    python benchmarks/kubernetes.py [--parts fakes pods --jobs 200]

The measurement is in `kube_figures.py`. This folder comes first on the path of every script in it, and the
Kubernetes client has this name. Imported by that name, this file therefore provides the real one.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - as select.py
if __name__ == "__main__":
    sys.path[:] = [f for f in sys.path if os.path.abspath(f) != here] + [here]  # noqa: PTH100 - as above
    from kube_figures import main

    main()
else:
    spec = PathFinder.find_spec("kubernetes", [f for f in sys.path if os.path.abspath(f) != here])  # noqa: PTH100
    if spec is None or spec.loader is None:
        raise ImportError("the client of Kubernetes is not installed; run pip install kubernetes")
    sys.modules["kubernetes"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["kubernetes"])
