"""`help(job.override)` tells all: parameters, errors, and an example that can be called like that."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import shlex
from typing import TYPE_CHECKING

from support.cases import for_each

import dlrover_nb
from dlrover_nb.api import Cluster, Job, connect, past
from dlrover_nb.cli import GRAMMAR
from dlrover_nb.magics.verbs import VERBS
from dlrover_nb.magics.verbs.spelling import BESIDE

if TYPE_CHECKING:
    from collections.abc import Callable

OWN_NAMES = {
    "import": "import_file",
    "shards": "shards",
    "cluster": "load",
    "help": "",
}  # where a verb is not a method's name
CLUSTER_VERBS = {
    "cluster",
    "delete",
    "submit",
    "jobs",
    "history",
    "audit",
    "score",
    "import",
    "attach",
    "dash",
    "shutdown",
}


def methods() -> dict[str, Callable[..., object]]:
    found = {
        "connect": connect,
        "lab": dlrover_nb.lab,
        "rehearse": dlrover_nb.rehearse,
        **{f"past.{n}": getattr(past, n) for n in ("runs", "history", "score")},
    }
    for kind in (Cluster, Job):
        found |= {
            f"{kind.__name__}.{name}": member
            for name, member in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }
    return found


METHODS = methods()


def parameters(method: Callable[..., object]) -> list[str]:
    return [name for name in inspect.signature(method).parameters if name != "self"]


def section(doc: str, name: str) -> str:
    """Return a numpydoc section's text; empty where it is not there."""
    found = re.search(rf"^{name}\n-+\n(.*?)(?=^[A-Z][a-z]+\n-+\n|\Z)", doc, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


@for_each("name", METHODS)
def test_every_method_says_what_it_does_in_one_line(name: str) -> None:
    first = (inspect.getdoc(METHODS[name]) or "").split("\n")[0]
    assert re.fullmatch(r"[A-Z].*[.:]", first), first


@for_each("name", [n for n, method in METHODS.items() if parameters(method)])
def test_every_parameter_is_explained_with_errors_and_an_example(name: str) -> None:
    doc = inspect.getdoc(METHODS[name]) or ""
    explained = {
        word.strip("* ")
        for line in section(doc, "Parameters").splitlines()
        if line and not line.startswith(" ")
        for word in line.split(",")
    }
    assert explained == set(parameters(METHODS[name]))
    if name != "Job.series":  # it asks the master, as the class says, and can fail in no other way
        assert section(doc, "Raises")
    assert ">>> " in section(doc, "Examples")


@for_each("name", METHODS)
def test_examples_call_what_is_there(name: str) -> None:
    for example in doctest.DocTestParser().get_examples(inspect.getdoc(METHODS[name]) or ""):
        for node in ast.walk(ast.parse(example.source)):
            if isinstance(node, ast.Call) and (method := _called(node)) is not None:
                own = (
                    []
                    if method in (connect, dlrover_nb.lab, dlrover_nb.rehearse)
                    or method.__module__ == past.__name__
                    else [None]
                )
                keywords = {k.arg: None for k in node.keywords if k.arg}
                inspect.signature(method).bind(*own, *node.args, **keywords)


def _called(node: ast.Call) -> Callable[..., object] | None:
    match ast.unparse(node.func).split("."):
        case ["cluster", name]:
            return getattr(Cluster, name)
        case ["job", name]:
            return getattr(Job, name)
        case ["dlrover_nb", ("connect" | "lab" | "rehearse") as name]:
            return getattr(dlrover_nb, name)
        case ["dlrover_nb", "api", "past", name]:
            return getattr(past, name)
    return None


@for_each(
    "verb", [v for v in VERBS if v not in {"connect", "serve", "lab"}]
)  # serve: a process; lab: no cluster
def test_every_verb_is_a_method(verb: str) -> None:
    assert callable(getattr(Cluster if verb in CLUSTER_VERBS else Job, OWN_NAMES.get(verb, verb)))


@for_each("word", GRAMMAR.words)
def test_every_verb_stands_in_the_help_with_examples_that_parse(word: str) -> None:
    start = "Without a job:" if word in BESIDE else " "
    assert re.search(rf"^{start} {word} +\w", GRAMMAR.help_text(), re.MULTILINE)
    _, heading, examples = GRAMMAR.help_text(word).partition("example")
    assert heading
    lines = re.findall(r"dlrover-nb (.*)", examples)
    assert len(lines) == len(GRAMMAR.words[word])
    for line, form in zip(lines, GRAMMAR.words[word], strict=True):
        assert GRAMMAR.parse(shlex.split(line)).verb.handler is form.verb.handler
