"""Run a node in its pod as a program."""

import sys

from dlrover_nb.core.runtime.pod.pod import main

sys.exit(main())
