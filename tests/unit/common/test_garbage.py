"""The garbage collector of servers, in a process of its own: its state is global."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from ottla.common.garbage import search_less

search_less()
frozen = gc.get_freeze_count()
cycle = []
cycle.append(cycle)
del cycle
print(frozen > 1000, gc.get_threshold()[0] > 10_000, gc.isenabled(), gc.collect() > 0)
"""


def test_code_is_not_searched_and_cycles_are_found() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.split() == ["True"] * 4
