"""A page of the dashboard, as a verb shows it: its address, to be opened in a browser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.api.views.job_views import Shown
from dlrover_nb.widgets.blocks import Paragraph, View
from dlrover_nb.widgets.rows.tables import facts

if TYPE_CHECKING:
    from dlrover_nb.widgets.rows.tables import Tables


@dataclass(frozen=True, slots=True, repr=False)
class PageView(Shown):
    """The address of a page; without one, a note."""

    title: str
    url: str
    text: str = ""

    def view(self) -> View:
        """Return the content."""
        words = "Open" if self.url else ""
        shown = (Paragraph(words, link=self.url),) if self.url else ()
        return View(self.title, (*shown, *((Paragraph(self.text),) if self.text else ())))

    def tables(self) -> Tables:
        """Return it as data."""
        return facts(title=self.title, url=self.url, text=self.text)
