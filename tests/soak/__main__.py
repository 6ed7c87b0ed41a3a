"""`python -m tests.soak --minutes 120`: run the soak, write its samples and its picture, and judge them.

The output directory gets `samples.jsonl` (one line for each sample, report and kill) and `soak.svg`. The exit code is 1
if something was lost, repeated, ended or grew. `--draw FILE` judges and draws a file of samples again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import threading
import time
from pathlib import Path

from tests.soak import drawing, verdict
from tests.soak.measures import sample
from tests.soak.processes import Kills, Soak

SAMPLE_S = 5.0


class Samples:
    """The file of samples; for several threads. Times are seconds since the start of the run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin_s = time.monotonic()
        self._lock = threading.Lock()
        path.write_text("")

    def now_s(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self._begin_s

    def note(self, figures: dict[str, object]) -> None:
        """Append a line."""
        with self._lock, self._path.open("a") as file:
            file.write(json.dumps({"at_s": round(self.now_s(), 1)} | figures) + "\n")


def run(options: argparse.Namespace) -> list[str]:
    """Run for the given minutes; return the problems."""
    shutil.rmtree(options.output, ignore_errors=True)
    options.output.mkdir(parents=True)
    soak = Soak(options.output / "data", with_pipeline=options.pipeline)
    try:
        samples = Samples(options.output / "samples.jsonl")
        kills = Kills(soak.cluster, options.kill_every, options.seed, samples.note)
        kills.start()
        while samples.now_s() < options.minutes * 60 and not soak.ended() and kills.problem is None:
            observe(soak, samples)
            time.sleep(SAMPLE_S)
        kills.stop()
        problems = [] if kills.problem is None else [f"a broker does not start: {kills.problem!r}"]
        samples.note({"kills": kills.count, "minutes": samples.now_s() / 60})
        return problems + soak.finish()
    finally:
        soak.close()


def observe(soak: Soak, samples: Samples) -> None:
    """Sample all processes, and let the connectors work."""
    soak.connectors.add()
    for name, (pid, directory) in soak.processes().items():
        if figures := sample(pid, directory):
            samples.note({"process": name, "pid": pid, **figures})
    for report in soak.load.reports():
        samples.note({"report": "clients", **report})


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--kill-every", type=float, default=240, metavar="SECONDS", help="on average")
    parser.add_argument("--seed", type=int, default=7, help="of the kills")
    parser.add_argument("--pipeline", action="store_true", help="also run a pipeline on Spark (needs Java)")
    parser.add_argument("--output", type=Path, default=Path("build/soak"))
    parser.add_argument("--draw", type=Path, metavar="FILE", help="only judge and draw this file of samples")
    options = parser.parse_args()
    problems = [] if options.draw else run(options)
    path = options.draw or options.output / "samples.jsonl"
    history = verdict.read(path)
    drawing.draw(history, path.with_name("soak.svg"))
    print(verdict.table(history))
    problems += verdict.problems(history)
    print("\n".join(problems) or f"Nothing was lost, and nothing grows: {path.with_name('soak.svg')}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
