"""Time travel through one run: the source of its moments, the scrubber, and the part that it replaces.

The scrubber is a form and links, each with its moment in the address: so it works without scripts.
``history.js`` then asks for the part of the moment alone. A moment is written as seconds since the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.client.past.comparison import end_s
from dlrover_nb.core.client.past.recorded_moment import happenings_of, moment_of
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.dashboard.pages.replays import REPLAYS, Reading
from dlrover_nb.dashboard.rendering import render
from dlrover_nb.widgets import units
from dlrover_nb.widgets.past.moment import moment_view, moment_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from markupsafe import Markup

    from dlrover_nb.core.client.past.history_queries import RunHistory
    from dlrover_nb.core.driver.past.time_travel import Replay
    from dlrover_nb.core.structs.views.moment import Happening, Moment

MOST_LINKS = 200
# How much before the moment the throughput is shown, in seconds; the first: all of it.
SPANS = {"": "all until then", "600": "10 minutes", "3600": "an hour", "21600": "6 hours", "86400": "a day"}


@dataclass(frozen=True, slots=True)
class Past:
    """What can be shown of a run's past.

    Parameters
    ----------
    replay
        Of its journal; None: the database alone is here.
    """

    history: RunHistory
    replay: Replay | None

    @property
    def start_s(self) -> float:
        """When the run was submitted."""
        return self.history.run.started_at_s

    @property
    def first_s(self) -> float:
        """The first moment that can be shown."""
        return self.start_s if self.replay is None else self.replay.first_s

    @property
    def last_s(self) -> float:
        """The last one."""
        return end_s(self.history) if self.replay is None else self.replay.last_s

    @property
    def happenings(self) -> tuple[Happening, ...]:
        """What happened, oldest first."""
        return happenings_of(self.history) if self.replay is None else self.replay.happenings

    def at(self, at_s: float) -> Moment:
        """Return the run at a moment, in seconds since 1970."""
        return moment_of(self.history, at_s) if self.replay is None else self.replay.at(at_s)

    def within(self, at_s: float) -> float:
        """Return a moment, or the nearest one that can be shown."""
        return min(max(at_s, self.first_s), self.last_s)


def past_of(history: RunHistory) -> Past | Reading:
    """Return the past of a run, or how far the reading of its journal is."""
    replay = REPLAYS.ask(history.run.job, history.run.run)
    return replay if isinstance(replay, Reading) else Past(history, replay)


def asked_moment(query: Mapping[str, str], past: Past) -> float:
    """Return the moment that an address names, in seconds since 1970; the last one where it names none.

    Raises
    ------
    InvalidValueError
        When it is no number of seconds.
    """
    text = query.get("at", "")
    if not text:
        return past.last_s
    try:
        since_s = float(text)
    except ValueError:
        since_s = float("nan")
    if not units.known(since_s):
        raise InvalidValueError(f"at must be seconds since the start, got {shown(text)}; leave it out")
    return past.within(past.start_s + since_s)


def asked_span_s(query: Mapping[str, str]) -> float | None:
    """Return how much before the moment an address asks for, in seconds; None for all.

    Raises
    ------
    InvalidValueError
        When it is none of those that there are.
    """
    text = query.get("span", "")
    if text not in SPANS:
        choices = ", ".join(filter(None, SPANS))
        raise InvalidValueError(f"span must be one of {choices} seconds, got {shown(text)}; leave it out")
    return float(text) if text else None


def part_html(past: Past, at_s: float, span_s: float | None = None) -> Markup:
    """Return the part of one moment; it holds the moment in words for those who do not see it change."""
    moment = past.at(at_s)
    before = [each for each in past.happenings if each.at_s <= at_s]
    return render(
        "moment.html",
        words=moment_words(moment, past.start_s, before[-1] if before else None),
        at=_seconds(at_s - past.start_s),
        view=moment_view(moment, past.start_s, past.history.run.job, span_s),
    )


@dataclass(frozen=True, slots=True)
class _Mark:
    """A moment where something happened, with its address."""

    href: str
    at: str
    elapsed: str
    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class Scrubber:
    """The scrubber at a moment.

    Parameters
    ----------
    fields
        What stays in the address.
    least, most, at
        The first moment, the last one, and the present one.
    times
        The moments that it snaps to.
    steps
        Id, words and address of the links to the moment before and after; without one the address is empty.
    span
        Of `spans`: how much before the moment is shown.
    n_left_out
        How many moments are not among the marks.
    """

    fields: Mapping[str, str]
    least: str
    most: str
    at: str
    elapsed: str
    times: tuple[str, ...]
    steps: tuple[tuple[str, str, str], ...]
    span: str
    marks: tuple[_Mark, ...]
    n_left_out: int
    spans: tuple[tuple[str, str], ...] = tuple(SPANS.items())


def scrubber_of(
    past: Past, at_s: float, span_s: float | None = None, *, root: str, keep: Mapping[str, str]
) -> Scrubber:
    """Return the scrubber at a moment, with links to the moments where something happened."""
    fields, start_s = {**keep, "run": past.history.run.run}, past.start_s
    span = "" if span_s is None else f"{span_s:g}"
    marks = past.happenings[-MOST_LINKS:]
    times = [each.at_s for each in marks]
    before = max((t for t in times if t < at_s), default=None)
    after = min((t for t in times if t > at_s), default=None)

    def href(moment_s: float | None) -> str:
        if moment_s is None:
            return ""
        spanned = {"span": span} if span else {}
        return f"{root}/history?{urlencode({**fields, **spanned, 'at': _seconds(moment_s - start_s)})}"

    return Scrubber(
        fields,
        _seconds(past.first_s - start_s),
        _seconds(past.last_s - start_s),
        _seconds(at_s - start_s),
        units.elapsed(at_s - start_s),
        tuple(_seconds(t - start_s) for t in dict.fromkeys(times)),
        (("travel-before", "Before", href(before)), ("travel-after", "After", href(after))),
        span,
        tuple(
            _Mark(
                href(each.at_s),
                _seconds(each.at_s - start_s),
                units.elapsed(each.at_s - start_s),
                each.kind,
                each.words,
            )
            for each in marks
        ),
        len(past.happenings) - len(marks),
    )


def _seconds(since_s: float) -> str:
    return f"{since_s:.3f}"
