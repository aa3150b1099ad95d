"""A server as the child of a notebook: it tells its address, and ends with its parent."""

import math
import subprocess
import sys
import urllib.request
from collections import deque
from urllib.parse import urlsplit

import psutil
import pytest
from support.virtual_time import SlowProcess, VirtualTime, as_shipped
from support.waiting import LIMIT_S, is_gone, until

from dlrover_nb.core.errors import BackendError
from dlrover_nb.dashboard.child import start
from dlrover_nb.dashboard.sign_in.by_secret import secret_file


@pytest.mark.more
def test_a_child_serves_until_it_is_stopped():
    served = start(["--cluster", "local"])
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with urllib.request.urlopen(f"{served.url}healthz", timeout=LIMIT_S) as answer:
        assert answer.status == 200
    with opener.open(served.link("metrics"), timeout=LIMIT_S) as answer:
        assert (answer.status, answer.url) == (200, f"{served.url}metrics")
    secret = secret_file(urlsplit(served.url).port).read_text().strip()
    assert secret not in "".join([served.link(), *served.log])
    assert served.is_running
    served.stop()
    assert served.process.returncode == 0
    until(lambda: served.process.stderr.closed, what="the end of its log")


def test_a_child_that_cannot_serve_says_why():
    with pytest.raises(BackendError, match="without a sign-in"):
        start(["--cluster", "local", "--address", "0.0.0.0"])


@pytest.mark.more
def test_a_child_ends_with_its_parent_even_when_that_is_killed():
    code = (
        "from dlrover_nb.dashboard.child import start\n"
        "served = start(['--cluster', 'local'])\n"
        "print(served.process.pid, flush=True)\n"
        "input()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait(LIMIT_S)
    parent.stdout.close()
    parent.stdin.close()
    until(lambda: is_gone(child.pid), what="the child's end")


@pytest.mark.parametrize(("ends_at_s", "killed_at_s"), [(10.0, math.inf), (10.1, 10.0)])
def test_a_child_that_does_not_end_by_itself_is_killed(ends_at_s, killed_at_s):
    time = VirtualTime()
    process = SlowProcess(time, ends_at_s)
    as_shipped("dlrover_nb.dashboard.child", time).Served(process, "http://127.0.0.1:1/", deque()).stop()
    assert process.killed_at_s == killed_at_s
