"""What another user of the machine finds: a program that becomes that user, and writes a line of JSON.

Its argument is JSON with ``urls``, ``posts`` and ``websockets`` to ask, ``sockets`` to connect to, and ``files``
to open. It says the status of each address (0: no answer), and which of the others opened.
"""

import encodings.idna  # noqa: F401 - read by the first request, when files of root's Python are closed
import http.client
import json
import os
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

NOBODY = 65534
LIMIT_S = 60.0


def status(url, method="GET", headers=None):
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=LIMIT_S)
    try:
        connection.request(method, f"{parts.path or '/'}?{parts.query}", headers=headers or {})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def websocket(url):
    asks = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "A" * 22 + "==",
        "Sec-WebSocket-Protocol": "bokeh, x",
        "Origin": url.rpartition("/live")[0],
    }
    return status(url, headers=asks)


def opens(path):
    try:
        with Path(path).open("rb"):
            return True
    except OSError:
        return False


def connects(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(LIMIT_S)
        try:
            client.connect(path)
        except OSError:
            return False
        return True


def main():
    asked = json.loads(sys.argv[1])
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    sys.stdout.write(
        json.dumps(
            {
                "urls": {url: status(url) for url in asked.get("urls", ())},
                "posts": {url: status(url, "POST") for url in asked.get("posts", ())},
                "websockets": {url: websocket(url) for url in asked.get("websockets", ())},
                "files": [path for path in asked.get("files", ()) if opens(path)],
                "sockets": [path for path in asked.get("sockets", ()) if connects(path)],
            }
        )
    )


main()
