"""What the Dockerfile promises, as far as it can be seen without building an image."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support.waiting import LIMIT_S

from dlrover_nb.core.client import handle
from dlrover_nb.core.structs.job.kubernetes import DEFAULT_IMAGE, KubernetesSpec

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = {
    "bokeh",
    "ipykernel",
    "ipython",
    "ipywidgets",
    "jupyterlab",
    "jupyter-server",
    "notebook",
    "panel",
}
NO_ROOM_FOR = NOTEBOOK | {"pytest", "ray", "ruff"}


def instructions():
    """Return the Dockerfile as pairs (word, rest), continued lines joined."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(maxsplit=1)) for line in lines]


def last_stage():
    found = instructions()
    start = max(at for at, (word, _) in enumerate(found) if word == "FROM")
    return found[start:]


def argument(name):
    return next(
        rest.partition("=")[2] for word, rest in instructions() if word == "ARG" and rest.startswith(name)
    )


def sent():
    """Return what .dockerignore lets into the build."""
    rules = [line for line in (ROOT / ".dockerignore").read_text().split() if not line.startswith("#")]
    return {rule[1:] for rule in rules if rule.startswith("!")} if "*" in rules else set()


def test_the_image_is_the_one_that_pods_take_by_default():
    assert f"docker build -t {DEFAULT_IMAGE} " in (ROOT / "Dockerfile").read_text()


def test_all_that_is_copied_is_there_and_is_sent():
    copied = [rest.split()[:-1] for word, rest in instructions() if word == "COPY" and "--from" not in rest]
    names = [name.removeprefix("./") for each in copied for name in each]
    assert names
    assert all((ROOT / name).exists() for name in names)
    assert set(names) == sent()


def test_the_image_runs_as_the_user_of_our_pods_and_not_as_root():
    users = [rest for word, rest in last_stage() if word == "USER"]
    assert users == ["{0}:{0}".format(KubernetesSpec().run_as_user)]
    assert any(
        f"--uid {KubernetesSpec().run_as_user}" in rest for word, rest in last_stage() if word == "RUN"
    )


def test_nothing_is_installed_or_compiled_in_the_last_stage():
    commands = " ".join(rest for word, rest in last_stage() if word in {"RUN", "COPY"})
    assert "--from=build" in commands
    assert not re.search(r"\b(pip|apt-get|gcc)\b", commands)


def test_the_image_holds_the_runtime_and_no_notebook():
    assert argument("EXTRAS") == "torch,kubernetes"
    found = closure(argument("EXTRAS").split(","))
    assert {"torch", "kubernetes", "waitress", "pyzmq", "numpy"} <= found
    assert not found & NO_ROOM_FOR


def test_the_image_of_the_dashboard_needs_no_torch_and_no_ray():
    [build] = re.findall(r"--build-arg EXTRAS=(\S+) -t (\S+) ", (ROOT / "Dockerfile").read_text())
    deployment = (ROOT / "deploy" / "dashboard" / "server.yaml").read_text()
    assert f"image: {build[1]}\n" in deployment
    found = closure(build[0].split(","))
    assert {"panel", "argon2-cffi", "joserfc", "kubernetes", "psycopg", "prometheus-client"} <= found
    assert not found & {"torch", "ray", "pytest"}


def closure(extras):
    """Return all that pip would install for these extras, as this environment knows it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *(t for e in extras for t in project["optional-dependencies"][e])]
    todo, found = [Requirement(text) for text in texts], set()
    while todo:
        wanted = todo.pop()
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        if name in found:
            continue
        found.add(name)
        try:
            of_it = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:  # of another platform
            continue
        todo += [each for each in of_it if each.marker is None or _is_asked(each.marker, wanted.extras)]
    return found


def _is_asked(marker, extras):
    return any(marker.evaluate({"extra": extra}) for extra in (*extras, ""))


IMPORT_ALL = textwrap.dedent("""
    import importlib, pkgutil, sys
    class Missing:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in {"IPython", "bokeh", "ipywidgets", "jupyterlab", "panel", "ray", "psycopg"}:
                raise ImportError(f"{name} is not in the image")
    sys.meta_path.insert(0, Missing())
    import dlrover_nb.core
    names = [m.name for m in pkgutil.walk_packages(dlrover_nb.core.__path__, "dlrover_nb.core.", onerror=print)]
    others = (".backends.ray.", ".migrations", "._kernel")  # Ray's; run by alembic alone; no Python in it
    names = [name for name in names if not any(other in name for other in others)]
    for name in names:
        importlib.import_module(name)
    import dlrover_nb.cli
    print(len(names))
""")


@pytest.mark.more
def test_all_of_the_core_but_ray_works_without_what_the_image_lacks():
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": "/nowhere",
        },
        cwd="/",
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) > 100


def test_a_user_id_without_a_name_is_a_name(monkeypatch):
    def nameless():
        raise KeyError("getpwuid(): uid not found: 65532")

    monkeypatch.setattr(handle.getpass, "getuser", nameless)
    assert handle.user_name() == str(os.getuid())
