"""Old path of `exported_master`: the command in exported files of release 0.1."""

from __future__ import annotations

import sys

from dlrover_nb.core.backends.kubernetes.exported_master import main

if __name__ == "__main__":
    sys.exit(main())
