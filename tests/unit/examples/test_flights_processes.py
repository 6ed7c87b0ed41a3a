"""How examples/flights.py ends: no process is left, and Ctrl-C ends it with one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
PARENT = """
import subprocess
from pathlib import Path

import flights_processes

flights_processes.END_WAIT_S = 0.5
child = subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 60 & echo $! > pid; wait"])
while not Path("pid").exists() or not Path("pid").read_text():
    pass
flights_processes.end_descendants()
print("ended with", child.wait(5), flights_processes.runs(int(Path("pid").read_text())))
"""


def test_processes_that_ignore_the_signal_are_killed(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PARENT],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.stdout, ended.stderr) == (f"ended with -{signal.SIGKILL.value} False\n", "")


@pytest.mark.parametrize("signals", [1, 3])
def test_interrupt_ends_the_example_with_one_line_and_its_broker_with_it(tmp_path: Path, signals: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", EXAMPLES / "flights.py", "--days", "1"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("the broker serves at ")
    for _ in range(signals):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.05)
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (130, "Interrupted.\n")
    assert not list(tmp_path.glob("ottla-flights-*"))
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
