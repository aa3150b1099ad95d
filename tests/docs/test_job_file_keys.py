"""The table of job file keys names what the code reads, with the code's defaults."""

import re
from pathlib import Path

import yaml

from dlrover_nb.core.jobfile import default_at, dump_job, known_keys
from dlrover_nb.core.structs.job.job import JobSpec

PAGE = Path(__file__).parents[2] / "docs/how-to/job-file.md"
NAME = re.compile(r"`([^`]+)`")


def rows():
    """Return the second cell of each row of the table by its key."""
    section = PAGE.read_text(encoding="utf-8").split("\n## Job file keys\n")[1].split("\n## ")[0]
    lines = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {cells[0].strip("| `"): cells[1] for cells in lines}


def test_the_table_names_every_key_and_no_other():
    found = rows()
    assert set(found) == set(known_keys())
    groups = {key: set(known_keys(key)) for key in known_keys() if known_keys(key)}
    assert {key: set(NAME.findall(found[key])) for key in groups} == groups


def test_the_table_gives_the_defaults_of_the_code():
    written_out = yaml.safe_load(dump_job(JobSpec("unnamed")))
    defaults = {key: written_out.get(key, default_at(key)) for key in known_keys() if key != "name"}
    for key, cell in rows().items():
        if key == "name":
            assert cell == "required"
        elif not known_keys(key):
            written = NAME.findall(cell)
            assert (yaml.safe_load(written[0]) if written else None) == (
                None if defaults[key] == "" else defaults[key]
            ), key
