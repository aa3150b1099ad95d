"""The body of a `%%dlrover submit` cell: a job file in YAML, or Python whose last expression is the job.

Both may be valid at once: ``name: x`` is a YAML mapping and an annotated name in Python, and
``class Net(Module):`` with an indented line is Python and a YAML mapping. A mapping with plain keys that are
no keywords of Python is YAML; anything else that Python can parse is Python. For text that neither can parse,
the error is that of the language that it resembles.
"""

from __future__ import annotations

import ast
import keyword
import linecache
import re
from itertools import count

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.jobfile import load_mapping

_WORD = re.compile(r"[A-Za-z_][\w.-]*")
_KEY = re.compile(rf"""["']?(?P<key>{_WORD.pattern})["']?\s*:(\s|$)""")
_PYTHON = re.compile(r"^\s*(import|from|def|class|async|for|if|while|with|try|return|@|print)\b|[(=]")
_NEAR = 60  # characters of a line that an error repeats
_numbers = count(1)


def yaml_mapping(cell: str) -> dict[str, object] | None:
    """Return the mapping that a cell holds in YAML; None when it holds Python.

    Raises
    ------
    InvalidValueError
        When it is neither, with the line, the column and the text at fault.
    """
    content: dict[str, object] = {}
    try:
        content = load_mapping(cell)
    except InvalidValueError:
        if _is_python(cell):
            return None
        if looks_like_yaml(cell):
            raise
        _parsed(cell, "<cell>")  # raises
    return content if all(map(_is_plain, content)) or not _is_python(cell) else None


def looks_like_yaml(cell: str) -> bool:
    """Whether a cell begins with a key, or with what only YAML begins with."""
    lines = (line for line in cell.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    first = next(lines, "").strip()
    match = _KEY.match(first)
    if match:
        return not keyword.iskeyword(match["key"])
    return first.startswith(("{", "- ", "---", "%")) or not _PYTHON.search(cell)


def run_python(code: str, namespace: dict[str, object]) -> object:
    """Run a cell among the user's variables, and return the value of its last expression; None without one.

    An exception in it is not changed, with the lines of the cell in its traceback.

    Raises
    ------
    InvalidValueError
        For a mistake of syntax, with its line; nothing has run then.
    """
    name = f"<dlrover submit {next(_numbers)}>"
    tree = _parsed(code, name)
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)  # for tracebacks
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), namespace)  # noqa: S102 - it is the user's own cell
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), name, "eval"), namespace)  # noqa: S307 - as above


def _parsed(code: str, name: str) -> ast.Module:
    try:
        tree = ast.parse(code, name)
        compile(tree, name, "exec")  # what the grammar allows and the compiler does not: `return` outside
    except SyntaxError as error:
        lines = code.splitlines()
        line = (error.lineno or 1) - 1
        near = lines[line].strip()[:_NEAR] if line < len(lines) else ""
        raise InvalidValueError(
            f"malformed Python in line {line + 1}, column {error.offset or 1}: {error.msg}, near `{near}`"
        ) from error
    except ValueError as error:  # a null byte
        raise InvalidValueError(f"malformed Python: {error}") from error
    return tree


def _is_python(cell: str) -> bool:
    """Whether Python can read it and it does more than name types, as a job file may seem to."""
    try:
        tree = _parsed(cell, "<cell>")
    except InvalidValueError:
        return False
    return not all(isinstance(node, ast.AnnAssign) and node.value is None for node in tree.body)


def _is_plain(key: object) -> bool:
    return isinstance(key, str) and _WORD.fullmatch(key) is not None and not keyword.iskeyword(key)
