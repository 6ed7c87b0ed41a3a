"""The allocator of servers with many threads."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, re, tempfile, threading
from ottla.common.allocator import share_one_arena
is_set = share_one_arena()
threads = 4
allocated = threading.Barrier(threads)
def work():
    kept = bytearray(100_000)
    allocated.wait(30)
for each in [threading.Thread(target=work) for _ in range(threads)]:
    each.start()
for each in threading.enumerate()[1:]:
    each.join(30)
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.fclose.argtypes = [ctypes.c_void_p]
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
with tempfile.NamedTemporaryFile() as place:
    stream = libc.fopen(place.name.encode(), b"w")
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    print(is_set, place.read().decode().count("<heap nr="))
"""


def arenas(**environment: str) -> list[str]:
    """Return whether the option was set, and the number of arenas after four threads have allocated memory."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", PROGRAM]
    ran = subprocess.run(command, env=given | environment, capture_output=True, text=True, timeout=60, check=True)
    return ran.stdout.split()


@pytest.mark.skipif("glibc" not in platform.libc_ver(), reason="arenas are glibc's")
def test_threads_of_a_server_share_one_arena_unless_the_user_sets_another_number() -> None:
    assert arenas() == ["True", "1"]
    is_set, number = arenas(MALLOC_ARENA_MAX="3")
    assert is_set == "False"
    assert int(number) == 3
