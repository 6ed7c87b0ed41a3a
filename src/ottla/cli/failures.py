"""Failures of the command for exceptions of clients: one line and the next step. Imported only after an exception."""

from ottla.clients import errors
from ottla.clients.admin.core import PartialFailure
from ottla.common.failure import Failure
from ottla.registry_client.errors import RegistryClientError, RegistryUnavailable


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


def explain_registry(error: RegistryClientError) -> Failure:
    """Return the failure for an exception of the registry's client."""
    if isinstance(error, RegistryUnavailable):
        return Failure(_line(error), "Is a registry running there? --registry URL names another.")
    return Failure(_line(error))


def _about(key: object, error: Exception) -> str:
    line, name = _line(error), str(key)
    has_name = isinstance(key, (str, int)) or name != repr(key)
    return f"{name}: {line}" if has_name and name not in line else line


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


_ADVICE: dict[type[errors.ClientError], str] = {
    errors.UnknownTopicOrPartition: "`ottla topic list` shows the existing topics.",
    errors.GroupNotFound: "`ottla group list` shows the existing groups.",
    errors.TransactionalIdNotFound: "`ottla txn list` shows the known ids.",
    errors.TopicAlreadyExists: "--if-not-exists skips topics that exist.",
    errors.NonEmptyGroup: "Stop its members first; `ottla group describe` shows them.",
    errors.UnsupportedByBroker: "The broker is too old, or does not support it: see docs/protocol.md for Ottla's APIs.",
    errors.RequestTimedOut: "The change may have been made: check before you retry.",
    errors.ConnectionLost: "The change may have been made: check before you retry.",
}
# Texts in the message of an error that no broker can be reached.
_UNREACHABLE = {
    "TLS handshake": "-X security.protocol=PLAINTEXT connects without TLS; -b HOST:PORT names another listener.",
    "want TLS": "-X security.protocol=SSL connects with TLS; -b HOST:PORT names another listener.",
    "does not answer": "Is it the port of a broker? -b HOST:PORT names another.",
    "resolves to nothing": "Check the name; -b HOST:PORT names another broker.",
    "": "Is a broker running there? `ottla up` starts one; -b HOST:PORT names another.",
}


def _advice(error: errors.ClientError) -> tuple[str, ...]:
    text = str(error)
    if isinstance(error, errors.TlsFailed):
        return ()  # the message names the setting
    if isinstance(error, errors.BrokerUnavailable):
        return next((advice,) for part, advice in _UNREACHABLE.items() if part in text)
    if "Cannot update these configs dynamically" in text and "restart" not in text:
        return ("It is read when a broker starts: from its server.properties, or `ottla up -X NAME=VALUE`.",)
    return next(((advice,) for kind, advice in _ADVICE.items() if isinstance(error, kind)), ())
