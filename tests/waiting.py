import time


def until(predicate, timeout_s=60.0, what="it"):
    """Poll what another process brings about; return its first true value."""
    end = time.monotonic() + timeout_s
    while not (value := predicate()):
        assert time.monotonic() < end, f"{what} did not come about within {timeout_s:g} s"
        time.sleep(0.1)
    return value
