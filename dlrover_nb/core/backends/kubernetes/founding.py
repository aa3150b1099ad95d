"""The old path of `exported_master`, which exported files of release 0.1 name as their command."""

from __future__ import annotations

import sys

from dlrover_nb.core.backends.kubernetes.exported_master import main

if __name__ == "__main__":
    sys.exit(main())
