"""What the system says of its processors."""

from __future__ import annotations

from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")


def cpu_info(field: str) -> str:
    """Return a field of the first processor, such as ``model name``; empty where the system does not say."""
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), "")
