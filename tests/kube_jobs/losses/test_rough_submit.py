"""Unkind things done to a submit: two at once under one name, and clients that die in the middle of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.kubernetes.jobs_in_pods import SMALL, job
from support.waiting import LIMIT_S, until

from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.errors import InvalidValueError

pytestmark = pytest.mark.kube

DIES = textwrap.dedent("""
    import os, signal, sys
    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.backends.kubernetes.cluster import connect_kubernetes
    from dlrover_nb.core.codec import from_json
    from dlrover_nb.core.structs.job.job import JobSpec

    left = int(sys.argv[1])

    def mortal(call):
        def counted(*arguments, **options):
            global left
            if options.get("dry_run"):
                return call(*arguments, **options)
            answer = call(*arguments, **options)
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer
        return counted

    Api.create, Api.patch = mortal(Api.create), mortal(Api.patch)
    connect_kubernetes(namespace=sys.argv[2]).submit(from_json(sys.argv[3].encode(), JobSpec))
""")


def submit_and_die(place, spec, n_write):
    """Submit in a process that is killed after so many writes; whether it was."""
    done = subprocess.run(
        [sys.executable, "-c", DIES, str(n_write), place.namespace, to_json(spec).decode()],
        env=os.environ | {"KUBECONFIG": place.test_cluster.kubeconfig},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode != 0


@pytest.mark.release
def test_a_client_that_dies_in_any_step_of_a_submit_leaves_a_name_that_can_be_used(free_place):
    dead = []
    while submit_and_die(free_place, job(name := f"dead-{len(dead) + 1}", plan=SMALL), len(dead) + 1):
        assert free_place.left_of(name)
        dead.append(name)
    assert len(dead) >= 5  # Job, Secret, account, Role, binding, and letting it go

    def is_clear():
        free_place.clear()  # again, since a pod may be made and placed after its job was deleted
        return not any(map(free_place.left_of, dead))

    until(is_clear, "the end of what the dead clients left")
    assert free_place.cluster.submit(job("dead-1", plan=SMALL)).name == "dead-1"


@pytest.mark.more
def test_of_two_users_who_submit_one_name_at_once_one_is_refused(free_place):
    clients = [free_place.connect(free_place.test_cluster.kubeconfig) for _ in range(2)]

    def submit(client):
        try:
            return client.submit(job("twin", plan=SMALL))
        except InvalidValueError as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(submit, clients))
    (handle,) = [each for each in told if isinstance(each, JobHandle)]
    (refusal,) = [each for each in told if isinstance(each, str)]
    assert handle.name == "twin"
    assert "twin" in refusal
    assert len(refusal.splitlines()) == 1
