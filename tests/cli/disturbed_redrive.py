"""`ottla dlq redrive`, disturbed before or after one of the producer's calls; a transaction has three letters.

    python -m tests.cli.disturbed_redrive STEPS ACT WORDS...

WORDS follow `ottla`. ACT happens after STEPS steps: `kill` (SIGKILL), `interrupt` (Ctrl-C), or `redrive`: another run
of the same command, from its begin to its end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

from ottla.cli.main import main
from ottla.clients import Producer
from ottla.tools import redrive

CALLS = ("init_transactions", "begin_transaction", "send", "send_offsets_to_transaction")
OTHER_S = 60


class Steps:
    """The steps that are left until the disturbance."""

    def __init__(self, left: int, act: str, words: list[str]) -> None:
        self._left, self._act, self._words = left, act, words

    def step(self) -> None:
        """Count one; the last one brings the disturbance."""
        self._left -= 1
        if self._left != -1:
            return
        if self._act == "redrive":
            other = [sys.executable, "-m", "ottla", *self._words]
            subprocess.run(other, check=True, timeout=OTHER_S, stdout=subprocess.DEVNULL)
        else:
            os.kill(os.getpid(), {"kill": signal.SIGKILL, "interrupt": signal.SIGINT}[self._act])

    def count(self, name: str) -> None:
        """Let a method of producers be two steps."""
        call = getattr(Producer, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            self.step()
            result = call(*arguments, **options)
            self.step()
            return result

        setattr(Producer, name, counted)

    def count_ends(self) -> None:
        """Let the end of a transaction be two steps."""
        end = Producer._end_transaction

        async def counted(*arguments: Any) -> None:
            self.step()
            await end(*arguments)
            self.step()

        Producer._end_transaction = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    redrive.LETTERS = 3
    steps = Steps(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
    for each in CALLS:
        steps.count(each)
    steps.count_ends()
    sys.exit(main(sys.argv[3:]))
