"""What Ray's client writes to descriptor 2 goes to a log while a verb runs, and nothing else does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import logging, os, sys
from dlrover_nb import cli
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.disk.paths import state_folder

def connect(kind, address, **options):
    os.write(2, b"E0000 gcs_rpc_client.h: Failed to connect\\n")
    logging.getLogger("ray").warning("the head is gone")
    sys.stderr.write("of us\\n")
    raise BackendError("no Ray at 10.0.0.1")

cli.connect = connect
sys.exit(cli.main(["jobs"]))
"""
USED_AGAIN = """
import io, os, sys
from dlrover_nb.magics.ray_messages import RAY_MESSAGES

sys.modules["ray"] = sys
before = sys.stderr
with RAY_MESSAGES.kept():
    os.write(2, b"hidden\\n")
os.write(2, b"shown\\n")
assert sys.stderr is before
print(RAY_MESSAGES.hint)
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def test_the_command_line_shows_its_own_error_and_says_where_the_messages_are(own_home: Path) -> None:
    told = run(SCRIPT)
    *shown, last = told.stderr.splitlines()
    assert told.returncode == 3
    assert shown == ["of us", "dlrover-nb: no Ray at 10.0.0.1"]
    log = Path(last.removeprefix("Ray's own messages are in ")).read_text()
    assert log.splitlines() == ["E0000 gcs_rpc_client.h: Failed to connect", "the head is gone"]


def test_a_kernel_takes_its_standard_error_back_after_the_verb(own_home: Path) -> None:
    told = run(USED_AGAIN)
    assert told.stderr == "shown\n"
    assert "ray-messages.log" in told.stdout


AND_ANOTHER = """
import os
from dlrover_nb.magics.ray_messages import RAY_MESSAGES

RAY_MESSAGES.begin()
os.write(2, b"of the first verb\\n")
assert RAY_MESSAGES.hint
RAY_MESSAGES.forget()
os.write(2, b"between two verbs\\n")
print("a verb without Ray:", RAY_MESSAGES.hint)
RAY_MESSAGES.begin()
print("a quiet one:", RAY_MESSAGES.hint)
os.write(2, b"of the third\\n")
print("a third:", bool(RAY_MESSAGES.hint))
"""


def test_a_verb_is_told_of_messages_that_came_to_it_alone(own_home: Path) -> None:
    ran = run(AND_ANOTHER)
    assert ran.stdout.splitlines() == ["a verb without Ray: ", "a quiet one: ", "a third: True"], ran.stderr


REPLACED = """
import io, os, sys
from dlrover_nb.magics.ray_messages import RAY_MESSAGES

RAY_MESSAGES.begin()
sys.stderr = another = io.StringIO()
RAY_MESSAGES.end()
assert sys.stderr is another
os.write(2, b"shown\\n")
"""


def test_a_standard_error_that_other_code_has_put_in_place_since_stays(own_home: Path) -> None:
    ran = run(REPLACED)
    assert (ran.stderr, ran.returncode) == ("shown\n", 0)
