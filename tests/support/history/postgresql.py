"""An empty database, a SQLite file or a schema of its own on a PostgreSQL server, for tests of whatever keeps records.

The server is the one that DLROVER_NB_TEST_POSTGRESQL_URL names; without it, a private one is started from the
binaries of Debian's package (a socket in a temporary folder, no port, gone with the run).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import uuid
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import create_engine, make_url, text
from suite.missing import missing

from support.waiting import LIMIT_S

ADDRESS = "DLROVER_NB_TEST_POSTGRESQL_URL"
READY = "database system is ready to accept connections"
QUICK = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "log_checkpoints=off")


def _binaries() -> Path | None:
    """Return the folder of the newest server that Debian's packages installed, or that is on the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: float(p.parts[-3]))
    on_path = shutil.which("postgres")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def _as_user() -> dict[str, object]:
    """Return how to start its programs: root may not run them, the package's own user may."""
    return {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}


@contextmanager
def _private_server(binaries: Path):
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # short: the socket lies in it
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    data = folder / "data"
    make = [binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
    made = subprocess.run(make, cwd=folder, capture_output=True, text=True, check=False, **_as_user())
    assert made.returncode == 0, made.stderr
    settings = [part for value in (*QUICK, "listen_addresses=") for part in ("-c", value)]
    # With the run killed, the kernel ends the server too (where it is Linux).
    guard = ["setpriv", "--pdeathsig", "INT"] if shutil.which("setpriv") else []
    serve = [*guard, binaries / "postgres", "-D", data, "-k", folder, *settings]
    server = subprocess.Popen(serve, cwd=folder, stderr=subprocess.PIPE, text=True, **_as_user())
    try:
        told = []
        for line in server.stderr:
            told.append(line)
            if READY in line:
                break
        else:
            pytest.fail("PostgreSQL did not start: " + "".join(told))
        drain = threading.Thread(target=server.stderr.read, daemon=True)
        drain.start()
        yield f"postgresql://postgres@/postgres?host={quote(str(folder))}"
    finally:
        server.send_signal(signal.SIGINT)  # its fast way to stop
        server.wait(LIMIT_S)
        drain.join(LIMIT_S)
        server.stderr.close()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgresql_server():
    """Return the URL of a server on which schemas may be made."""
    if address := os.environ.get(ADDRESS):
        yield address
    elif binaries := _binaries():
        with _private_server(binaries) as address:
            yield address
    else:
        missing("postgresql")


@pytest.fixture
def postgresql_url(postgresql_server):
    """Return a URL whose tables live in a new schema, dropped afterwards."""
    name = f"test_{uuid.uuid4().hex}"
    server = make_url(postgresql_server).set(drivername="postgresql+psycopg")
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"create schema {name}"))
    own = server.set(drivername="postgresql").update_query_dict({"options": f"-csearch_path={name}"})
    yield own.render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.execute(text(f"drop schema {name} cascade"))
    engine.dispose()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.more)])
def database_url(request, tmp_path):
    """Return the URL of an empty database, of one kind after the other."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgresql_url")
    return f"sqlite:///{tmp_path / 'deep' / 'history.db'}"
