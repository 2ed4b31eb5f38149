"""The Python end of `bench/side.ts`: answers as lines of JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, TextIO


def answer(out: TextIO, value: dict[str, Any]) -> None:
    out.write(json.dumps(value) + "\n")
    out.flush()


def peak_bytes() -> int:
    """The most memory this process has had in use."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(
            line
            for line in status.read_text().splitlines()
            if line.startswith("VmHWM:")
        )
        return int(line.split()[1]) * 1024
    import resource  # not on every system

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
