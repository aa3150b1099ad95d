"""The sources of the documentation's site: its pages, with those that are made from the code.

``python tools/docs_reference.py FOLDER`` writes them; `make docs` builds the site of that. Verbs and job file
keys cannot differ from the code, because they are read from it each time.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
import sys
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlrover_nb.cli import CLUSTER, GRAMMAR, JSON
from dlrover_nb.core.jobfile import WRITTEN_AS, known_values
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.magics.arguments import GRAMMAR as NOTEBOOK

if TYPE_CHECKING:
    from dlrover_nb.magics.verbs.spelling import Spelled

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
VERBS_INTRODUCTION = """\
Each verb works as `%dlrover VERB` in a notebook and as `dlrover-nb VERB` in a shell, with methods in the
[Python API](api.md); a flag behind it says which of its things you want. `%dlrover help VERB` shows the same
text. Where the two differ, both stand here; {of_shell}
are the shell's alone, and so are `--json` and `--cluster`."""
OLD_NAMES = """\
The verbs of earlier releases go on working, with the same flags, and say how they are spelled now."""
KEYS_INTRODUCTION = """\
A job file is YAML. Every key but `name` has a default; a group that is given in part keeps the defaults of
the rest. See [Write a job file](../how-to/job-file.md)."""
INCLUDED = re.compile(r"^# file: (.+)\n", re.MULTILINE)
UNDERLINED = re.compile(r"^\s*-{3,}\s*$")


def main(folder: Path) -> None:
    """Write all pages to a folder that holds nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("examples"))
    (folder / "reference/verbs.md").write_text(verbs_page(), encoding="utf-8")
    (folder / "reference/job-file.md").write_text(job_file_page(), encoding="utf-8")
    shutil.copy(ROOT / "deploy/README.md", folder / "operators.md")
    for page in folder.rglob("*.md"):
        page.write_text(with_example(page.read_text(encoding="utf-8")), encoding="utf-8")


def with_example(page: str) -> str:
    """Put a file of the example package in the place of its line ``# file: NAME``."""
    return INCLUDED.sub(lambda line: (DOCS / "examples/dlrover-nb-example" / line[1]).read_text(), page)


def verbs_page() -> str:
    """Return the reference of all verbs, as their own help shows it, and what old names are called now."""
    parts = ["# Verbs", VERBS_INTRODUCTION.format(of_shell=_of_shell_alone())]
    for word, forms in GRAMMAR.words.items():
        parts += [f"## {word}", f"```text\n{GRAMMAR.help_text(word)}\n```"]
        if any(_differs(form) for form in forms):
            parts += ["In a notebook:", f"```text\n{NOTEBOOK.help_text(word)}\n```"]
    parts += ["## Old names", OLD_NAMES, _old_names()]
    return "\n\n".join(parts) + "\n"


def _of_shell_alone() -> str:
    forms = [each for forms in GRAMMAR.words.values() for each in forms]
    alone = [f"`{each.start}`" for each in forms if each.form.verb not in NOTEBOOK.verbs]
    return f"{', '.join(alone[:-1])} and {alone[-1]}"


def _differs(form: Spelled) -> bool:
    """Whether a form takes something else in a notebook."""
    of_shell = tuple(each for each in form.verb.arguments if each is not JSON and each is not CLUSTER)
    of_notebook = [each for each in NOTEBOOK.words[form.word] if each.form is form.form]
    return any(
        [argument.names for argument in each.verb.arguments] != [argument.names for argument in of_shell]
        for each in of_notebook
    )


def _old_names() -> str:
    rows = ["| before | now |", "| --- | --- |"]
    for name in GRAMMAR.verbs:
        now = [f"`{each.start}`" for f in GRAMMAR.words.values() for each in f if each.form.verb == name]
        if name not in GRAMMAR.words and now:
            rows.append(f"| `{name}` | {' or '.join(now)} |")
    return "\n".join(rows)


def job_file_page() -> str:
    """Return the reference of all keys of a job file, group by group."""
    parts = ["# Job file keys", KEYS_INTRODUCTION]
    for group, record in _groups(JobSpec, ""):
        parts += [f"## {group or 'Top level'}", _table(group, record)]
    return "\n\n".join(parts) + "\n"


def _groups(record: type, group: str) -> list[tuple[str, type]]:
    """Return a record and the records inside it, each with its path in the file."""
    found = [(group, record)]
    for name, kind in _fields(record):
        if (inner := _record_in(kind)) is not None:
            found += _groups(inner, f"{group}.{name}".lstrip("."))
    return found


def _fields(record: type) -> list[tuple[str, Any]]:
    hints = typing.get_type_hints(record)
    return [(WRITTEN_AS.get(f.name, f.name), hints[f.name]) for f in dataclasses.fields(record)]


def _record_in(kind: Any) -> type | None:
    """Return the record that a field holds; None for a plain value or a list."""
    kinds = [kind, *typing.get_args(kind)] if typing.get_origin(kind) is not tuple else []
    return next((k for k in kinds if dataclasses.is_dataclass(k) and isinstance(k, type)), None)


def _table(group: str, record: type) -> str:
    texts = parameters(record.__doc__ or "")
    defaults = {WRITTEN_AS.get(f.name, f.name): f for f in dataclasses.fields(record)}
    rows = ["| key | default | meaning |", "| --- | --- | --- |"]
    for name, kind in _fields(record):
        if _record_in(kind) is not None:
            continue
        field = defaults[name]
        words = known_values(f"{group}.{name}".lstrip("."))
        meaning = texts.get(field.name, "")
        choice = f"One of {', '.join(f'`{word}`' for word in words)}. " if words else ""
        rows.append(f"| `{name}` | {_default(field)} | {choice}{meaning} |")
    return "\n".join(rows) if len(rows) > 2 else "Only groups."


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        value = field.default
    elif field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    else:
        return "required"
    if value in (None, (), ""):
        return "none"
    return f"`{_as_yaml(value)}`".replace("|", "\\|")


def _as_yaml(value: object) -> str:
    """Return a value as it is written in a job file."""
    match value:
        case bool():
            return str(value).lower()
        case tuple():
            return str(list(value))
        case _:
            return str(value)


def parameters(docstring: str) -> dict[str, str]:
    """Return the text of each parameter of a numpydoc docstring."""
    lines = docstring.expandtabs().splitlines()
    start = next((i for i, line in enumerate(lines) if line.strip() == "Parameters"), None)
    if start is None:
        return {}
    found: dict[str, list[str]] = {}
    names: list[str] = []
    base = len(lines[start]) - len(lines[start].lstrip())
    for line in lines[start + 2 :]:
        indent = len(line) - len(line.lstrip())
        if UNDERLINED.match(line):
            break
        if line.strip() and indent == base:
            names = [name.strip() for name in line.strip().split(",")]
            found |= {name: [] for name in names}
        elif line.strip():
            for name in names:
                found[name].append(line.strip())
    return {name: " ".join(text).replace("|", "\\|") for name, text in found.items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
