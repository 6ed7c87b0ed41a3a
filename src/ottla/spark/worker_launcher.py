"""Starts Spark's Python process as a fork of `worker_server`, in place of the Python interpreter.

`worker_server` copies this text to a script, which Spark starts as its `python`. To start in milliseconds, the script
runs without `site` and imports only what the interpreter already contains. It sends its arguments, environment and
standard streams, and then only waits: if Spark ends it, the fork gets SIGTERM. Without a server it becomes the
interpreter itself.
"""

import _socket
import marshal
import os
import sys


def launch(address: str, python: str) -> None:
    """Start what the arguments say, and return when it has ended. Does not return if it becomes the interpreter."""
    if sys.argv[1:2] != ["-m"] or not _forked(address):
        os.execv(python, [python, *sys.argv[1:]])  # noqa: S606 - the interpreter that Spark wanted


def _forked(address: str) -> bool:
    """Whether the server has started it."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    text = marshal.dumps((sys.argv[2:], dict(os.environb), os.getcwd()))  # noqa: PTH109 - pathlib takes 20 ms
    streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)]
    try:
        connection.connect(address)
        connection.sendmsg([len(text).to_bytes(4, sys.byteorder)], rights)
        connection.sendall(text)
        if not connection.recv(1):
            return False
    except OSError:
        return False
    try:
        connection.recv(1)  # until the fork and its own forks have ended
    except OSError:
        return True
    return True
