"""Run a node as a program."""

import sys

from dlrover_nb.core.runtime.node.node import main

sys.exit(main(sys.argv[1:]))
