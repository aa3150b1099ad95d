"""A page at all widths in both themes: what breaks a rule of axe, what is cut off, and which texts overlap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from support.browser.chromium import unnamed
from support.browser.looks import cut_off, overlapping

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTHS_PX = (360, 480, 700, 1024, 1440, 1920, 2560)
THEMES = ("light", "dark")
BROKEN = "async part => (await axe.run(part, {iframes: false})).violations"


@dataclass(frozen=True)
class Fault:
    """What is wrong with a part of a page, at a width in a theme."""

    where: str
    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.kind}: {self.what}"


def faults(page: Any, axe: str, name: str, *, part: str = "body", frame: Any = None) -> Iterator[Fault]:
    """Give what is wrong with the page that is open, in the themes of its system, at each width.

    Parameters
    ----------
    axe
        The script of axe.
    name
        Of the page, for the reader.
    part
        The element that is looked at.
    frame
        The frame of the page that it is in; None: the page itself.
    """
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        for width in WIDTHS_PX:
            page.set_viewport_size({"width": width, "height": 1000})
            yield from _faults_now(frame or page, axe, f"{name}, {theme}, {width} px", part)


def _faults_now(page: Any, axe: str, where: str, part: str) -> Iterator[Fault]:
    page.evaluate(f"() => {{ if (!window.axe) {{ {axe} }} }}")
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    view = page.locator(part).first
    for rule in page.evaluate(BROKEN, part):
        for node in rule["nodes"]:
            yield Fault(where, rule["id"], f"{node['html'][:160]} {node['failureSummary']}")
    yield from (Fault(where, "cut off", what) for what in cut_off(view))
    yield from (Fault(where, "overlap", what) for what in overlapping(view))
    yield from (Fault(where, "unnamed", what) for what in unnamed(view.aria_snapshot()))
