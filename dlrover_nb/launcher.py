"""The tile of the dashboard in JupyterLab's launcher, by an entry point of jupyter-server-proxy.

JupyterLab starts the server when the user opens the tile, on a socket that this user alone may open, and
passes on the requests of those who have signed in to JupyterLab. So the server has no sign-in of its own:
every caller is this user.
"""

from __future__ import annotations

import sys
from pathlib import Path

NAME = "dlrover"  # of the entry point: the path below JupyterLab's own
START_S = 60  # a server imports for seconds, and on a busy machine longer


def tile() -> dict[str, object]:
    """Return how jupyter-server-proxy starts the dashboard, and what its tile shows."""
    return {
        "command": [
            *(sys.executable, "-m", "dlrover_nb.cli", "serve"),
            *("--unix-socket", "{unix_socket}", "--prefix", "{base_url}" + NAME),
        ],
        "unix_socket": True,
        "absolute_url": True,  # links of pages begin with the prefix
        "timeout": START_S,
        "new_browser_tab": False,
        "launcher_entry": {
            "title": "dlrover-nb dashboard",
            "icon_path": str(Path(__file__).with_name("dashboard") / "static" / "icon.svg"),
        },
    }
