"""Write the tables of the dashboard's documents from the code: `python tools/make_serve_tables.py`.

The roles of ``docs/how-to/dashboard.md`` come from `core.commands.table.COMMANDS`, the keys of
``docs/reference/serve.md`` from the records that `serve` reads; a test fails when the pages say anything
else. They are files of the repository and not made with the site, so that they can be read in it.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

from dlrover_nb.core.commands.table import COMMANDS
from dlrover_nb.core.structs.views.alerts import AlertRules
from dlrover_nb.dashboard.alerts.settings import AlertSettings
from dlrover_nb.dashboard.settings import ProxySettings, ServeSettings
from dlrover_nb.dashboard.sign_in.oidc import OidcSettings

sys.path.insert(0, str(Path(__file__).parent))

from docs_reference import parameters

ROOT = Path(__file__).resolve().parents[1]
GUIDE, REFERENCE = "docs/how-to/dashboard.md", "docs/reference/serve.md"
RECORDS = (ServeSettings, ProxySettings, AlertSettings, AlertRules, OidcSettings)
HEAD = "| action | needs, on a job of anybody's | on a job of one's own |\n| --- | --- | --- |\n"


def files() -> dict[str, str]:
    """Return what each page is to hold, by its path."""
    guide, reference = ((ROOT / path).read_text(encoding="utf-8") for path in (GUIDE, REFERENCE))
    for record in RECORDS:
        reference = _between(reference, f"<!-- keys of {record.__name__} -->\n", _keys(record))
    return {GUIDE: _between(guide, "<!-- roles -->\n", HEAD + _roles()), REFERENCE: reference}


def _roles() -> str:
    return "".join(f"| {row.action} | {row.of_others} | {row.of_own} |\n" for row in COMMANDS)


def _keys(record: type) -> str:
    texts = parameters(record.__doc__ or "")
    return "| key | default | meaning |\n| --- | --- | --- |\n" + "".join(
        f"| `{field.name}` | {_default(field)} | {texts[field.name].replace('``', '`')} |\n"
        for field in dataclasses.fields(record)
    )


def _default(field: dataclasses.Field[object]) -> str:
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
        return "required"
    made = field.default_factory is not dataclasses.MISSING
    value = field.default_factory() if made else field.default  # type: ignore[misc]  # one of the two is there
    if dataclasses.is_dataclass(value):
        return "see below"
    if isinstance(value, float):
        return f"`{value:g}`"
    if isinstance(value, tuple) and value:
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value}`" if value else "none"


def _between(text: str, begin: str, rows: str) -> str:
    found = re.compile(re.escape(begin) + r".*?(?=<!-- end -->)", re.DOTALL)
    if len(found.findall(text)) != 1:
        raise ValueError(f"expected {begin.strip()} with an end once, found it otherwise")
    return found.sub(lambda _: begin + rows, text)


if __name__ == "__main__":
    for path, content in files().items():
        (ROOT / path).write_text(content, encoding="utf-8")
