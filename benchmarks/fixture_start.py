"""How long a test waits for its broker: from the set-up of the `ottla` fixture to the first acknowledged record.

    python benchmarks/fixture_start.py [RUNS]

Each run is a pytest of its own, so that all imports are in it, with the bytecode there. "Set-up" begins when pytest
asks for the session's broker. The record goes by the helper (no network), by Ottla's Producer or by confluent-kafka's;
their import is in the figure where it says so.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

CONFTEST = """
import json, time
BEGAN = []

def pytest_fixture_setup(fixturedef, request):
    if fixturedef.argname == "ottla_session_broker":
        BEGAN.append(time.perf_counter())

def report():
    print("RESULT", json.dumps((time.perf_counter() - BEGAN[0]) * 1000))
"""
SENDERS = {
    "the helper": ("", "ottla.produce(ottla.topic(), b'x')"),
    "confluent-kafka, imported before": (
        "import confluent_kafka",
        (
            "p = confluent_kafka.Producer({'bootstrap.servers': ottla.bootstrap}); "
            "p.produce(ottla.topic(), b'x'); assert p.flush(10) == 0"
        ),
    ),
    "Ottla's Producer, its import included": (
        "",
        (
            "from ottla.clients import Producer; p = Producer(bootstrap_servers=ottla.bootstrap); "
            "p.send(ottla.topic(), b'x').result(10)"
        ),
    ),
}


def measure(imports: str, send: str, place: str) -> float:
    """Milliseconds in one fresh pytest."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "conftest.py").write_text(CONFTEST)
        text = f"{imports}\nfrom conftest import report\n\ndef test_it(ottla):\n    {send}\n    report()\n"
        Path(directory, "test_it.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-s", f"--ottla={place}", "test_it.py"],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        )
    for line in done.stdout.splitlines():
        if "RESULT " in line:
            return float(json.loads(line.partition("RESULT ")[2]))
    raise SystemExit(done.stdout + done.stderr)


def main() -> None:
    """Print the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    print(f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} cores, {runs} runs each")
    print(f"{'where':8} {'first acknowledged record by':38} {'median':>8} {'least':>8} {'most':>8}   ms")
    for place in ("thread", "process"):
        for name, (imports, send) in SENDERS.items():
            times = [measure(imports, send, place) for _ in range(runs + 1)][1:]
            print(
                f"{place:8} {name:38} {statistics.median(times):8.0f} {min(times):8.0f} {max(times):8.0f}", flush=True
            )


if __name__ == "__main__":
    main()
