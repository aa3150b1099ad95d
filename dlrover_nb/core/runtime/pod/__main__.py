"""Run a node in its pod as a program."""

import sys

from dlrover_nb.core.runtime.pod.pod import main

if __name__ == "__main__":
    sys.exit(main())
