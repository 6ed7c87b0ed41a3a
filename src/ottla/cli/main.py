"""The process of `ottla COMMAND ...`: streams, exit codes, and failures as lines of text.

Exit codes: 0 success, 1 failure, 2 wrong arguments or settings, 130 interrupted, 141 the reader of the output ended.
"""

import signal
import sys
import threading
from collections.abc import Sequence

from ottla.cli import late
from ottla.cli.terminal import open_closed_streams, quiet_pipe
from ottla.common.failure import Failure
from ottla.common.style import Style


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    open_closed_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    with quiet_pipe():
        try:
            return _run(words)
        except Failure as failure:
            return _report(failure)
        except KeyboardInterrupt:
            _ignore_interrupts()
            return 130
        except Exception as error:  # an error of clients, whose modules most commands do not import
            registry = sys.modules.get("ottla.registry_client.errors")
            if registry is not None and isinstance(error, registry.RegistryClientError):
                return _report(late.failures.explain_registry(error))
            clients = sys.modules.get("ottla.clients.errors")
            if clients is None or not isinstance(error, clients.ClientError):
                raise
            return _report(late.failures.explain(error))


def _run(words: list[str]) -> int:
    if words[:1] == ["up"]:
        options = late.serve.plain_options(words[1:])
        if options is not None:
            return late.serve.run(options)
    return late.root.run(words)


def _ignore_interrupts() -> None:
    """Ignore a second Ctrl-C: it would interrupt the end of the interpreter, which prints a traceback then."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _report(failure: Failure) -> int:
    sys.stdout.flush()  # results come before the failure
    print(Style.of(sys.stderr).red(f"{failure.command}: {failure.problem}"), file=sys.stderr)
    for line in failure.advice:
        print(f"       {line}", file=sys.stderr)
    return failure.exit_code


if __name__ == "__main__":
    sys.exit(main())
