"""Run the master of a local job: ``python -m dlrover_nb.core.backends.local RUN_FOLDER [HOW_IT_ENDED]``."""

import sys

from dlrover_nb.core.runtime.process.lasting_imports import lasting_imports

with lasting_imports():  # collections would be a tenth of the CPU time until it serves
    from dlrover_nb.core.backends.local.master import main

if __name__ == "__main__":
    sys.exit(main())
