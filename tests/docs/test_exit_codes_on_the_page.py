"""The reference of the command line lists its exit codes."""

import re
from pathlib import Path

from dlrover_nb.cli import ExitCode

PAGE = Path(__file__).parents[2] / "docs/reference/command-line.md"


def test_exit_codes_are_those_of_the_reference() -> None:
    listed = re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert list(map(int, listed)) == [code.value for code in ExitCode]
