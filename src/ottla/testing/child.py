"""The process of a `ProcessBroker`: executes requests from an inherited socket until the other end closes it.

python -m ottla.testing.child FD
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
from typing import Any

from ottla.common.errors import KafkaError
from ottla.testing.base import BrokerError
from ottla.testing.pipe import Pipe
from ottla.testing.running import ThreadBroker


def main() -> int:
    """Serve one parent."""
    pipe = Pipe(socket.socket(fileno=int(sys.argv[1])))
    broker: ThreadBroker | None = None
    try:
        while True:
            question = pipe.receive()
            try:
                answer: Any = None
                if question[0] == "start":
                    _, properties, directory, port = question
                    broker = ThreadBroker(properties, directory, port)
                    broker.start()
                    answer = broker.bootstrap
                elif broker is None:
                    raise BrokerError("It was not started")
                elif question[0] == "stop":
                    broker.stop()
                else:
                    answer = broker.call(*question[1:])
            except Exception as error:  # noqa: BLE001 - raised in the parent
                pipe.send((True, _portable(error)))
            else:
                pipe.send((False, answer))
    except EOFError:
        return 0
    finally:
        # The parent has closed the socket, so a clean shutdown has no use; the process releases everything.
        os._exit(0)


def _portable(error: Exception) -> Any:
    if isinstance(error, KafkaError):
        return error.code, error.message
    try:
        return pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - pickling may raise anything; the error is sent as text instead
        return BrokerError(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    sys.exit(main())
