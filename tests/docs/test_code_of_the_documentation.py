"""Every code block of the documentation is run, or checked by the parser of what it is written in."""

import ast
import contextlib
import io
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.cases import for_each

import dlrover_nb
from dlrover_nb import cli
from dlrover_nb.core.jobfile import parse_job
from dlrover_nb.magics.arguments import GRAMMAR

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "deploy/README.md"]
)
FENCE = re.compile(
    r"(?P<note><!-- check: (?P<check>\w+) -->\n)?^```(?P<kind>\w*)[^\n]*\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
INCLUDED = re.compile(r"^# file: (.+)\n", re.MULTILINE)
KINDS = {"python", "yaml", "sh", "text", "dockerfile"}
OTHER_PROGRAMS = {
    "kubectl",
    "docker",
    "pip",
    "cd",
    "curl",
    "export",
    "git",
    "pre-commit",
    "pytest",
    "sudo",
    "apt-get",
    "pg_ctl",
    "pg_dump",
    "pg_restore",
    "sqlite3",
    "uv",
}


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    check: str  # "compile": needs what a test does not have, a Ray or a file of the reader's


def blocks_of(page):
    found = FENCE.finditer(page.read_text())
    return [Block(m["kind"], INCLUDED.sub(included, m["text"]), m["check"] or "") for m in found]


def included(line):
    """Return the file of the example package that stands in a block."""
    return (ROOT / "docs/examples/dlrover-nb-example" / line[1]).read_text()


def name_of(page):
    return str(page.relative_to(ROOT))


@for_each("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is_written_in(page):
    assert {block.kind for block in blocks_of(page)} <= KINDS


@pytest.mark.more
@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(b.kind == "python" for b in blocks_of(p))], ids=name_of
)
def test_python_runs_from_the_top_of_a_page_to_its_end(page):
    space = {"__name__": "page"}
    with contextlib.redirect_stdout(io.StringIO()):
        for block in (b for b in blocks_of(page) if b.kind == "python"):
            python, verbs = without_verbs(block.text)
            for line in verbs:
                GRAMMAR.parse_line(line)
            code = compile(python, name_of(page), "exec")
            check_names(ast.parse(python))
            if not block.check and not verbs:
                exec(code, space)


@for_each("page", [p for p in PAGES if any(b.kind == "yaml" for b in blocks_of(p))], ids=name_of)
def test_job_files_are_read(page):
    for block in (b for b in blocks_of(page) if b.kind == "yaml"):
        if block.text.startswith("name:"):
            parse_job(block.text)


@for_each("page", [p for p in PAGES if any(b.kind == "sh" for b in blocks_of(p))], ids=name_of)
def test_commands_are_understood(page):
    for block in (b for b in blocks_of(page) if b.kind == "sh"):
        for line in block.text.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                check_command(words)


def check_command(words):
    first, *rest = words
    if first == cli.CLI:
        cli.GRAMMAR.parse(rest)
    elif first == "make":
        targets = re.findall(r"^([\w.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {word for word in rest if "=" not in word} <= set(targets)
    elif first in {"python", "bash"}:
        script = next(word for word in rest if word != "-u")
        assert script in {"-m", "-c"} or "NAME" in script or (ROOT / script).exists(), script
    else:
        assert first.partition("=")[0] in OTHER_PROGRAMS or "=" in first, f"unknown command {first}"
    for word in rest:
        if word.startswith(("deploy/", "benchmarks/", "tools/", "notebooks/")):
            assert (ROOT / word).exists(), word


def without_verbs(text):
    """Return a block's Python, and the lines of `%dlrover` that it holds."""
    python, verbs = [], []
    for line in text.splitlines():
        found = re.match(r"\s*(?:\w+ = )?%dlrover (.*?)(?:\s+#.*)?$", line)
        if found:
            verbs.append(found[1])
            python.append(re.match(r"\s*", line)[0] + "pass")
        elif not line.lstrip().startswith("%"):
            python.append(line)
    return "\n".join(python) + "\n", verbs


def check_names(tree):
    """Fail where a public name is used that is not there."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "dlrover_nb"
        ):
            assert hasattr(dlrover_nb, node.attr), node.attr
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("dlrover_nb"):
            exec(compile(ast.Module([node], []), "import", "exec"), {})
