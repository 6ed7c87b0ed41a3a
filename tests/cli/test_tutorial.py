"""docs/tutorial.md as a new user follows it: each file is written, each command is run, its output is compared."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import deadlines
from tests.ottla_process import OttlaProcess

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
DEFAULT = "127.0.0.1:9092"
WAIT_S = 300.0
# These differ from run to run: a duration, the partition of records without keys, and the summary of the pipeline,
# which may be printed before its last report has arrived. The next command checks its result.
VARIES = re.compile(r"in [\d.]+ m?s(?: \([\d,]+/s\))?|revenue: .*rows to revenue|revenue: .* behind|orders/\d [\d-]+")


def commands(block: str) -> list[tuple[str, str]]:
    """Return each command of a block with its output."""
    parts = (part.partition("\n") for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:])
    return [(command, output.strip()) for command, _, output in parts]


class Follower:
    """Follows the page in a directory."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self._directory, self._bootstrap = directory, bootstrap
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = os.environ | {"PATH": path, "OTTLA_BOOTSTRAP": bootstrap, "NO_COLOR": "1"}

    def write(self, text: str) -> None:
        """Write a file of the page, with the broker's address in place of the default."""
        name = text.partition("\n")[0].removeprefix("# file: ")
        (self._directory / name).write_text(text.replace(DEFAULT, self._bootstrap))

    def run(self, command: str, said: str) -> None:
        """Run a command, and compare its output."""
        done = subprocess.run(
            command, shell=True, capture_output=True, text=True, timeout=WAIT_S, check=False,
            cwd=self._directory, env=self._environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert VARIES.sub("*", (done.stdout + done.stderr).strip()) == VARIES.sub("*", said)

    def run_connector(self, command: str, file: str, lines: int) -> None:
        """Run a worker on a free port until its sink has written the lines; it must stop cleanly."""
        with (self._directory / "connect.log").open("wb") as log:
            process = subprocess.Popen(
                [*command.split(), "--listen", "127.0.0.1:0"], stdout=subprocess.DEVNULL, stderr=log,
                cwd=self._directory, env=self._environment,
            )  # fmt: skip
        try:
            deadline, path = time.monotonic() + WAIT_S, self._directory / file
            while not path.exists() or path.read_text().count("\n") < lines:
                assert process.poll() is None, (self._directory / "connect.log").read_text()
                assert time.monotonic() < deadline, (self._directory / "connect.log").read_text()
                time.sleep(0.1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
        finally:
            deadlines.kill(process)


@pytest.mark.long
@pytest.mark.timeout(900)  # it starts Spark
def test_the_tutorial_works_from_its_start_to_its_end(tmp_path: Path) -> None:
    install = commands(BLOCKS[0][1])
    assert [command.partition(" ")[0] for command, _ in install] == ["python3", "pip", "ottla"]
    assert install[2] == ("ottla up --data ./data", f"bootstrap={DEFAULT}")
    with OttlaProcess(tmp_path / "broker") as broker:
        follower = Follower(tmp_path, broker.bootstrap)
        for kind, text in BLOCKS[1:]:
            if kind != "console":
                follower.write(text)
                continue
            for command, said in commands(text):
                if command.startswith("ottla connect run"):
                    assert said.startswith("connect=http://")
                    follower.run_connector(command, "receipts.txt", lines=3)
                else:
                    follower.run(command, said)
    assert sorted((tmp_path / "receipts.txt").read_text().splitlines()) == [
        '{"drink":"cocoa","cents":116550}', '{"drink":"espresso","cents":83500}', '{"drink":"tea","cents":100500}',
    ]  # fmt: skip
