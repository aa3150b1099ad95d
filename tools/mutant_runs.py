"""The pytest plugin of `tools/mutants.py`: run the collected tests in one forked process per mutant.

The process that forks has collected the tests and run none, so that a fork begins with everything imported
and nothing remembered. A change is put into the functions that are loaded (their ``__code__``), wherever they
were imported to: no module is read anew, and no file is written.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, Phase, settings
from mutant_source import changed_functions, digest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
REACH = ROOT / "build" / "mutants" / "reach"
BUDGET_S = 20  # processor time of the tests of one mutant
SLOW_S = 10  # a test that takes more is not cheap
LIMIT_S = 60  # processor time of a process: what takes more does not end
STILL_S = 120  # a process that has used no processor time for as long waits for what will not come
MEMORY = 6 << 30  # that a process may take beyond what it began with
PR_SET_PDEATHSIG = 1
STARTS = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system")
OWN_SETTINGS = "_hypothesis_internal_use_settings"  # where Hypothesis stores those of a test
Functions = dict[tuple[str, str, int], list[FunctionType]]

N_EXAMPLE = 20  # of a law, at most
settings.register_profile(
    "mutants",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=N_EXAMPLE,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let laws draw the same few examples, and put all temporary files in one folder."""
    config.option.hypothesis_profile = "mutants"
    tempfile.tempdir = tempfile.mkdtemp(prefix="mu")
    config.option.basetemp = str(Path(tempfile.tempdir) / "t")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Draw no more examples where a law asks for more."""
    for item in items:
        function = getattr(item, "function", None)
        if (own := getattr(function, OWN_SETTINGS, None)) is not None:
            setattr(function, OWN_SETTINGS, few(own))
        case = getattr(item, "cls", None)
        if isinstance(own := getattr(case, "settings", None), settings):
            case.settings = few(own)


def few(own: settings) -> settings:
    """Return the settings of a law with few examples."""
    return settings(own, max_examples=min(own.max_examples, N_EXAMPLE))


def pytest_unconfigure() -> None:
    """Leave nothing behind."""
    shutil.rmtree(str(tempfile.tempdir), ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run the mutants of one room in place of the tests."""
    job = json.loads(Path(os.environ["DLROVER_NB_MUTANTS"]).read_text())
    gc.unfreeze()
    functions = loaded_functions()
    gc.collect()
    gc.freeze()
    reach = reached(session, job["modules"], job["marks"])
    texts = (path.read_text() for folder in ("dlrover_nb", "tests") for path in sources(ROOT / folder))
    results = Results(Path(job["results"]), digest(*texts, job["marks"]))
    waiting = [each for each in job["mutants"] if not results.has(each["id"])]
    for at, mutant in enumerate(waiting, 1):
        result = tried(session, mutant, functions, reach, results.killer(mutant["id"]))
        results.put(mutant, result)
        place = f"{job['room']} {at}/{len(waiting)} {mutant['path']}:{mutant['line']}"
        by = f"by {result['killer']}" if result["killer"] else f"{result['n_test']} tests"
        say(f"{place} {result['outcome']} {by} ({result['cpu_s']:.1f} s)")
    return True


def say(text: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def sources(folder: Path) -> list[Path]:
    """Return the Python files below a folder."""
    return sorted(folder.rglob("*.py"))


def loaded_functions() -> Functions:
    """Return all functions of the package, by what their code says of itself."""
    functions: Functions = {}
    for each in gc.get_objects():
        # Not isinstance, which asks the object: some of other packages answer with a warning.
        if type(each) is FunctionType and "dlrover_nb" in each.__code__.co_filename:
            functions.setdefault(_name(each.__code__), []).append(each)
    return functions


def _name(code: Any) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


class Results:
    """What became of each mutant, in a file; a result counts for the code and tests of its time."""

    def __init__(self, path: Path, code: str) -> None:
        self._path = path
        self._code = code
        self._results: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}

    def has(self, name: str) -> bool:
        """Whether the mutant was run with code and tests as they are."""
        return bool(self._results.get(name, {}).get("code") == self._code)

    def killer(self, name: str) -> str:
        """Return the test that killed it when it was run last."""
        return str(self._results.get(name, {}).get("killer", ""))

    def put(self, mutant: dict[str, Any], result: dict[str, Any]) -> None:
        """Store a result at once."""
        place = {key: mutant[key] for key in ("room", "path", "line", "diff")}
        self._results[mutant["id"]] = {**place, **result, "code": self._code}
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self._results, indent=1))
        new.replace(self._path)


def reached(session: pytest.Session, modules: list[str], marks: str) -> dict[str, dict[str, Any]]:
    """Return the tests that pass and start no process, with their seconds and the lines that each reaches."""
    code = digest(*(path.read_text() for path in sources(ROOT / "dlrover_nb")), *modules, marks)
    worlds = digest(
        *(path.read_text() for path in sources(ROOT / "tests") if not path.name.startswith("test_"))
    )
    by_file: dict[Path, list[pytest.Item]] = {}
    for item in session.items:
        by_file.setdefault(item.path, []).append(item)
    reach: dict[str, dict[str, Any]] = {}
    for at, (path, items) in enumerate(by_file.items(), 1):
        stored = REACH / f"{digest(code, worlds, path.read_text())[:24]}.json"
        if not stored.exists():
            REACH.mkdir(parents=True, exist_ok=True)
            say(f"reach {at}/{len(by_file)} {path.relative_to(ROOT)}")
            forked(
                lambda items=items, stored=stored: note_reach(session, items, modules, stored), limit_s=3600
            )
        reach |= json.loads(stored.read_text()) if stored.exists() else {}
    return reach


def note_reach(session: pytest.Session, items: list[pytest.Item], modules: list[str], stored: Path) -> None:
    """Run tests with their coverage, one by one."""
    cover = Coverage(data_file=None, include=[str(ROOT / each) for each in modules], config_file=False)
    cover.start()
    tests: dict[str, dict[str, Any]] = {}
    for at, item in enumerate(items):
        cover.switch_context(item.nodeid)
        began = time.process_time()
        is_sound = passes(session, item, items[at + 1] if at + 1 < len(items) else None)
        if is_sound and (seconds := time.process_time() - began) < SLOW_S:
            tests[item.nodeid] = {"cpu_s": seconds, "lines": {}}
    cover.stop()
    data = cover.get_data()
    for path in data.measured_files():
        for line, names in data.contexts_by_lineno(path).items():
            for name in set(names) & set(tests):
                tests[name]["lines"].setdefault(str(Path(path).relative_to(ROOT)), []).append(line)
    stored.with_suffix(".new").write_text(json.dumps(tests))
    stored.with_suffix(".new").replace(stored)


def passes(session: pytest.Session, item: pytest.Item, following: pytest.Item | None) -> bool:
    """Run one test, and return whether nothing in it failed."""
    n_failed = session.testsfailed
    session.shouldfail = False
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    return session.testsfailed == n_failed


def tried(
    session: pytest.Session,
    mutant: dict[str, Any],
    functions: Functions,
    reach: dict[str, dict[str, Any]],
    killer: str,
) -> dict[str, Any]:
    """Run the tests that reach a mutant, and return what became of it."""
    tests = chosen(mutant, reach, killer)
    items = {item.nodeid: item for item in session.items}
    result: dict[str, Any] = {"outcome": "survived", "killer": "", "n_test": len(tests), "cpu_s": 0.0}
    if not tests:
        return result
    note = Path(str(tempfile.tempdir)) / "note"
    note.unlink(missing_ok=True)
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    status = forked(
        lambda: run_mutant(session, mutant, functions, [items[name] for name in tests], note), limit_s=LIMIT_S
    )
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    result["cpu_s"] = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
    if status == NOT_LOADED:
        raise RuntimeError(f"{mutant['path']}:{mutant['line']} is in no function that is loaded")
    if status:
        result |= {"outcome": "killed", "killer": note.read_text() if note.exists() else ""}
    return result


def chosen(mutant: dict[str, Any], reach: dict[str, dict[str, Any]], killer: str) -> list[str]:
    """Return the tests that reach the line, the quickest first, as far as the budget goes."""
    names = [name for name, test in reach.items() if mutant["line"] in test["lines"].get(mutant["path"], ())]
    names.sort(key=lambda name: (name != killer, reach[name]["cpu_s"]))
    left, few = float(BUDGET_S), []
    for name in names:
        left -= reach[name]["cpu_s"]
        if few and left < 0:
            break
        few.append(name)
    return few


NOT_LOADED = 3


def run_mutant(
    session: pytest.Session,
    mutant: dict[str, Any],
    functions: Functions,
    items: list[pytest.Item],
    note: Path,
) -> None:
    """Put the change into what is loaded, and run tests until one fails."""
    path = ROOT / mutant["path"]
    placed = 0
    for before, after in changed_functions(path.read_text(), mutant["source"], str(path)):
        for function in functions.get(_name(before), ()):
            if function.__code__ == before:
                function.__code__ = after
                placed += 1
    if not placed:
        os._exit(NOT_LOADED)
    for at, item in enumerate(items):
        note.write_text(item.nodeid)
        if not passes(session, item, items[at + 1] if at + 1 < len(items) else None):
            os._exit(1)


def forked(do: Callable[[], None], limit_s: int) -> int:
    """Do it in a process of its own, and return 0 when it came to its end."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        _alone(do, limit_s)
    status = _ended(child)
    for left in Path(str(tempfile.tempdir)).iterdir():
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
    return status


def _alone(do: Callable[[], None], limit_s: int) -> None:
    """Do it without output, processes or more than so much time and memory; never return."""
    status = 2
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a run that is ended takes it along
        with Path(os.devnull).open("r+b") as nothing:
            for each in range(3):
                os.dup2(nothing.fileno(), each)
        _limit(limit_s)
        do()
        status = 0
    finally:
        os._exit(status)


def _limit(limit_s: int) -> None:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def refuse(event: str, _: tuple[object, ...]) -> None:
        if event in STARTS:
            raise PermissionError(f"{event}: this test starts a process")

    sys.addaudithook(refuse)


def _ended(child: int) -> int:
    """Wait for a process as long as it works, end one that does not, and return how it ended."""
    used, since = -1.0, time.monotonic()
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if (now := _cpu_s(child)) > used + 0.2:
            used, since = now, time.monotonic()
        if time.monotonic() - since > STILL_S:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.05)


def _cpu_s(child: int) -> float:
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
