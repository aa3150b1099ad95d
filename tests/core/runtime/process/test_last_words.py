"""The error in the last lines of a program: found where there is one, and nothing else taken for it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from support.cases import for_each

from dlrover_nb.core.runtime.process.last_words import FATAL, is_failure, last_error, parsed
from dlrover_nb.core.structs.training.failures import ProgramError

HEALTHY = [
    ("INFO", "dlrover_nb.core.runtime.worker.worker: worker-0 trains with 1 PS, epoch 1"),
    ("stdout", "step 12, loss 0.31, error rate 0.2"),
    ("WARNING", "rows: row 500 comes"),
    ("stderr", "100%|#####| 12/12"),
]
TRACEBACK = [
    ("stderr", "Traceback (most recent call last):"),
    ("stderr", '  File "/tmp/x/rows.py", line 12, in read'),
    ("stderr", "    raise ValueError(row)"),
    ("stderr", "ValueError: row 3 is broken"),
]
ERROR = ProgramError("ValueError: row 3 is broken", "rows.py:12 in read")


def test_a_healthy_log_has_no_error() -> None:
    assert last_error(HEALTHY) is None
    assert last_error([]) is None


@pytest.mark.parametrize("after", [[], HEALTHY])
def test_the_error_of_a_traceback_is_found_with_its_place(after: list[tuple[str, str]]) -> None:
    assert last_error([*HEALTHY, *TRACEBACK, *after]) == ERROR


def test_lines_of_others_may_stand_in_a_traceback() -> None:
    mixed = [line for each in TRACEBACK for line in (("stdout", "step 3"), each)]
    assert last_error(mixed) == ERROR


def test_of_chained_errors_the_last_one_counts() -> None:
    first = [(level, text.replace("ValueError", "KeyError")) for level, text in TRACEBACK]
    between = ("stderr", "During handling of the above exception, another exception occurred:")
    assert last_error([*first, between, *TRACEBACK]) == ERROR


def test_a_logged_error_is_told_without_the_name_of_its_logger() -> None:
    lines = [("ERROR", "rows.reader: no rows in /data"), ("ERROR", "and one more line of it"), *HEALTHY]
    assert last_error(lines) == ProgramError("no rows in /data")


@for_each(
    "text",
    [
        f"{FATAL}: Segmentation fault",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "double free or corruption (out)",
        "thread 'main' panicked at src/main.rs:2:5:",
        "python: model.c:12: step: Assertion `n > 0' failed.",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data'",
        "bash: fatal error: no such program",
    ],
)
def test_what_libraries_write_before_they_abort_is_an_error(text: str) -> None:
    assert last_error([("stderr", text), *HEALTHY]) == ProgramError(text)


def test_the_log_of_a_real_program_that_raised_is_read() -> None:
    program = "def read():\n    raise ValueError('row 3')\nprint('begins', flush=True)\nread()\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert last_error(parsed(done.stderr)) == ProgramError("ValueError: row 3", "<string>:2 in read")
    assert is_failure(done.returncode)
    assert last_error(parsed(done.stdout)) is None


def test_kills_are_no_failures_of_a_program() -> None:
    killed = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    assert not any(is_failure(code) for number in killed for code in (-number, 128 + number))
    crashed = (signal.SIGSEGV, signal.SIGABRT)
    assert all(is_failure(code) for number in crashed for code in (-number, 128 + number))
    assert is_failure(1)
    assert is_failure(255)
    assert not is_failure(0)
