"""A record that some program reads from bytes has fields whose types are known when it runs.

An annotation whose name is imported for type checkers alone passes all checks, until the first such record arrives.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import msgspec
from support.cases import for_each

import dlrover_nb

PACKAGE = Path(dlrover_nb.__file__).parent
READERS = {"from_json", "from_checked_json", "from_msgpack"}


def read_types() -> list[tuple[str, str]]:
    """Return the module and the expression of each type that a call of a reader names."""
    found = {
        (
            ".".join(("dlrover_nb", *path.relative_to(PACKAGE).with_suffix("").parts)),
            ast.unparse(call.args[1]),
        )
        for path in PACKAGE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in READERS
    }
    return sorted(each for each in found if each[1][0].isupper() or "[" in each[1])  # no variables


@for_each("module, kind", read_types())
def test_the_types_of_all_fields_are_known_when_a_record_is_read(module, kind):
    msgspec.json.Decoder(eval(kind, vars(import_module(module))))
