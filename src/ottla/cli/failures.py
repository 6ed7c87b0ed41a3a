"""Failures of the command for exceptions of clients: one line and the next step. Imported only after an exception."""

from ottla.cli.terminal import Failure
from ottla.clients import errors
from ottla.clients.admin.core import PartialFailure


def explain(error: errors.ClientError) -> Failure:
    """Return the failure for a client's exception."""
    if isinstance(error, PartialFailure):
        shown = [_about(key, each) for key, each in list(error.errors.items())[:10]]
        if len(error.errors) > 10:
            shown.append(f"and {len(error.errors) - 10} more")
        if len(shown) == 1:
            return Failure(shown[0], *_advice(next(iter(error.errors.values()))))
        total = len(error.errors) + len(error.results)
        return Failure(f"{len(error.errors)} of {total} failed", *shown)
    exit_code = 2 if isinstance(error, errors.ConfigurationError) else 1
    return Failure(_line(error), *_advice(error), exit_code=exit_code)


def _about(key: object, error: Exception) -> str:
    line, name = _line(error), str(key)
    has_name = isinstance(key, (str, int)) or name != repr(key)
    return f"{name}: {line}" if has_name and name not in line else line


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _advice(error: errors.ClientError) -> tuple[str, ...]:
    if isinstance(error, errors.BrokerUnavailable):
        return _unreachable(error)
    if isinstance(error, errors.UnknownTopicOrPartition):
        return ("`ottla topic list` shows the existing topics.",)
    if isinstance(error, errors.GroupNotFound):
        return ("`ottla group list` shows the existing groups.",)
    if isinstance(error, errors.TransactionalIdNotFound):
        return ("`ottla txn list` shows the known ids.",)
    if isinstance(error, errors.TopicAlreadyExists):
        return ("--if-not-exists skips topics that exist.",)
    if isinstance(error, errors.NonEmptyGroup):
        return ("Stop its members first; `ottla group describe` shows them.",)
    if isinstance(error, errors.UnsupportedByBroker):
        return ("The broker is too old, or does not support it: see docs/protocol.md for Ottla's APIs.",)
    if "Cannot update these configs dynamically" in str(error) and "restart" not in str(error):
        return ("It is read when a broker starts: from its server.properties, or `ottla up -X NAME=VALUE`.",)
    if isinstance(error, (errors.RequestTimedOut, errors.ConnectionLost)):
        return ("The change may have been made: check before you retry.",)
    return ()


def _unreachable(error: errors.BrokerUnavailable) -> tuple[str, ...]:
    if isinstance(error, errors.TlsFailed):
        return ()  # the message names the setting
    text = str(error)
    if "TLS handshake" in text:
        return ("-X security.protocol=PLAINTEXT connects without TLS; -b HOST:PORT names another listener.",)
    if "want TLS" in text:
        return ("-X security.protocol=SSL connects with TLS; -b HOST:PORT names another listener.",)
    if "does not answer" in text:
        return ("Is it the port of a broker? -b HOST:PORT names another.",)
    if "resolves to nothing" in text:
        return ("Check the name; -b HOST:PORT names another broker.",)
    return ("Is a broker running there? `ottla up` starts one; -b HOST:PORT names another.",)
