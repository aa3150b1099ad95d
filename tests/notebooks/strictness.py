"""What strict nbval leaves open, as hooks of the run of a notebook: its `conftest.py` there.

- A mistake in a magic is a line on stderr, which nobody compares in a cell whose output varies: no cell may write
  there.
- nbval compares no pictures: a cell that draws a chart must have one stored.
- HTML says what the text beside it says, with ids of its own: text is compared, HTML is not.
- nbval sees lines of a wait as first drawn, not that they are emptied: they are no results.
- A cell with the tag `NUMBERS` says the same with other numbers each time: its outline is compared. That is the title of
  the view, its headings and its tables with their columns; a text without any of these is its words. Where the comment of
  such a cell says ``# Numbers vary by 20 %: REASON.``, its numbers are compared too, up to that.

Rejected: comparing all words of a view without its numbers. Sentences say what is best and by how much, and so differ
with the numbers.
"""

import re
from itertools import pairwise

import pytest
from nbval.plugin import IPyNbCell, IPyNbFile

WAIT = "Waiting for "
NUMBERS = "numbers-vary"
MOST = re.compile(r"^# Numbers vary(?: by (\d+) %)?: ", re.MULTILINE)
NUMBER = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
UNDERLINE, COLUMNS = re.compile(r"([=-])\1{2,}"), re.compile(r"-{2,}(?:  -{2,})+")
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


def texts(outputs):
    """Return the texts of outputs, those of one stream as one."""
    streams = "".join(one.text for one in outputs if one.output_type == "stream")
    plain = [one.data.get("text/plain", "") for one in outputs if one.output_type != "stream"]
    return [text for text in (streams, *plain) if text.strip()]


def compare_results(cell, test, ref, skip_compare=None):
    """Compare as nbval does, but results alone; of a cell whose numbers vary its outline."""
    if NUMBERS not in cell.cell.metadata.get("tags", []):
        return compare(cell, results(test), ref, skip_compare)
    said = MOST.search(cell.cell.source)
    most = None if said is None or said[1] is None else int(said[1]) / 100
    now, before = texts(results(test)), texts(ref)
    cell.comparison_traceback = differences(before, now, most)
    return not cell.comparison_traceback


def differences(before, now, most=None):
    """Return what of the stored texts is not in those of the run, one line each.

    Parameters
    ----------
    most
        By which share of the larger one two numbers may differ; None: by any.
    """
    if len(before) != len(now):
        return [f"expected {len(before)} texts, got {len(now)}: {now}"]
    found = [line for one, other in zip(before, now, strict=True) for line in _of_text(one, other)]
    if not found and most is not None:
        found = [
            line for one, other in zip(before, now, strict=True) for line in _of_numbers(one, other, most)
        ]
    return found


def _of_text(before, now):
    stored, shown = outline(before), outline(now)
    if not stored:
        words = [" ".join(NUMBER.sub("#", text).split()) for text in (before, now)]
        return [] if words[0] == words[1] else [f"expected {words[0]!r}, got {words[1]!r}"]
    return [
        f"expected {title!r} with {columns}, got {sorted(shown.items())}"
        for title, columns in stored.items()
        if title not in shown or not (is_within(columns, shown[title]) or is_within(shown[title], columns))
    ]


def is_within(some, all_of_them):
    """Whether columns are among others, in their order: a column without any content is not shown."""
    left = iter(all_of_them)
    return all(column in left for column in some)


def _of_numbers(before, now, most):
    pairs = zip(numbers(before), numbers(now), strict=True)
    return [
        f"expected {a:g} up to {most:.0%}, got {b:g}"
        for a, b in pairs
        if abs(a - b) > most * max(abs(a), abs(b))
    ]


def numbers(text):
    """Return the numbers in a text."""
    return [float(each.replace(",", "")) for each in NUMBER.findall(text)]


def outline(text):
    """Return titles and headings of a view, each without its numbers, and the columns of what is a table."""
    lines, parts = text.splitlines(), {}
    for i, (above, line) in enumerate(pairwise(lines), start=1):
        if UNDERLINE.fullmatch(line):
            parts[_bare(above)] = ()
        elif COLUMNS.fullmatch(line):
            start = (
                max(
                    (j for j in range(i) if not lines[j].strip() or UNDERLINE.fullmatch(lines[j])), default=-1
                )
                + 1
            )
            title, *head = lines[start:i]
            parts[_bare(title)] = _columns(head, line)
    return parts


def _bare(title):
    """Return a title up to a colon, and with # for numbers: what stands behind it says how things are."""
    return NUMBER.sub("#", title.partition(": ")[0]).strip()


def _columns(head, line):
    """Return the titles of the columns, which may be broken into several lines."""
    starts = [match.start() for match in re.finditer(r"-+", line)]
    ends = [*starts[1:], None]
    words = (" ".join(row[a:b].strip() for row in head) for a, b in zip(starts, ends, strict=True))
    return tuple(" ".join(each.split()) for each in words)


IPyNbCell.compare_outputs = compare_results
