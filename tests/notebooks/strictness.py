"""What strict nbval leaves open, as hooks of the run of a notebook: its `conftest.py` there.

- A mistake in a magic is a line on stderr, which nobody compares in a cell whose output varies: no cell may write
  there.
- nbval compares no pictures: a cell that draws a chart must have one stored.
- HTML says what the text beside it says, with ids of its own: text is compared, HTML is not.
- nbval sees lines of a wait as first drawn, not that they are emptied: they are no results.
"""

import pytest
from nbval.plugin import IPyNbCell, IPyNbFile

WAIT = "Waiting for "
compare = IPyNbCell.compare_outputs


def pytest_collectstart(collector):
    if isinstance(collector, IPyNbFile):
        collector.skip_compare += ("text/html",)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    result = yield
    said = "".join(output.text for output in item.test_outputs if output.get("name") == "stderr")
    if said:
        item.raise_cell_error("Cell wrote to stderr", said)
    drawn, stored = map(is_drawn, (results(item.test_outputs), item.cell.outputs))
    if drawn and not stored and item.cell.execution_count is not None:
        item.raise_cell_error("Cell draws a chart and stores no picture", "")
    return result


def is_drawn(outputs):
    """Whether there is a chart among outputs of a run, or the picture of one among stored ones."""
    data = [output.get("data", {}) for output in outputs]
    return any("image/png" in one or "<svg" in one.get("text/html", "") for one in data)


def results(outputs):
    """Return outputs without the lines of a wait."""
    return [one for one in outputs if not one.get("data", {}).get("text/plain", "").startswith(WAIT)]


def compare_results(cell, test, ref, skip_compare=None):
    """Compare as nbval does, but results alone."""
    return compare(cell, results(test), ref, skip_compare)


IPyNbCell.compare_outputs = compare_results
