"""Run a node as a program."""

import sys

from dlrover_nb.core.runtime.process.lasting_imports import lasting_imports

with lasting_imports():
    from dlrover_nb.core.runtime.node.node import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
