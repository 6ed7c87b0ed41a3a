"""Java calls that an exception of a signal handler interrupts, such as pytest-timeout's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.clientserver import ClientServerConnection  # type: ignore[import-untyped,unused-ignore]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_interrupted: list[str] = []


def close_their_connections() -> None:
    """Let py4j close the connection of an interrupted call.

    py4j has one connection for each thread, and Java answers its calls in order. After an interrupted call, the next
    one of the thread would wait until Java has ended the interrupted one, and take its answer.
    """
    send = ClientServerConnection.send_command

    def send_or_close(self: Any, command: str) -> Any:
        try:
            return send(self, command)
        except Exception:
            raise  # py4j handles it
        except BaseException:
            self.close()
            _interrupted.append(command)
            raise

    ClientServerConnection.send_command = send_or_close


def activate_again(session: SparkSession) -> None:
    """Make this the active session of the thread if it has another connection, so another Java thread, by now.

    Without an active session, Spark does not find data sources in Python.
    """
    if _interrupted:
        _interrupted.clear()
        jvm: Any = session._jvm
        jvm.SparkSession.setActiveSession(session._jsparkSession)
