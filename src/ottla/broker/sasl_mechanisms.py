"""The SASL mechanisms of a broker: from the settings of a listener to exchanges.

`MECHANISMS` has a function for each mechanism. It checks the settings of one listener, without a broker, and returns
a function that starts an exchange. Another mechanism is another entry of this table.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.broker import plugins
from ottla.broker.authentication import Mechanism, SaslListener
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.security import jaas, plain, scram
from ottla.security.mechanism import AuthenticationError, SaslError, SaslServer

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.config import BrokerConfig
    from ottla.metadata.image import MetadataImage

logger = logging.getLogger(__name__)

Start: TypeAlias = "Callable[[Broker], SaslServer]"
"""Starts an exchange with a client of a broker."""
Prepare: TypeAlias = "Callable[[str, BrokerConfig], Start]"
"""Checks the settings of a mechanism, given its name; raises KafkaError (INVALID_CONFIG)."""

CALLBACK_SETTING: Final = "sasl.server.callback.handler.class"
KAFKAS_PLAIN_CALLBACK: Final = "org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler"
# How long the function that checks a password may take.
CALLBACK_TIMEOUT_S: Final = 30.0
_NONCE_BYTES: Final = 24
_NO_KERBEROS: Final = "GSSAPI (Kerberos) is not supported"


def prepared(config: BrokerConfig, listener: str) -> dict[str, Start]:
    """Return the enabled mechanisms of a listener, in their order. Raises KafkaError for a setting that is wrong."""
    enabled = config.for_listener(listener).items("sasl.enabled.mechanisms")
    starts: dict[str, Start] = {}
    for name in enabled:
        prepare = MECHANISMS.get(name)
        if prepare is None:
            problem = _NO_KERBEROS if name == "GSSAPI" else f"{name} is not a known mechanism"
            raise _invalid(listener, f"{problem}: set sasl.enabled.mechanisms to some of {', '.join(MECHANISMS)}")
        try:
            starts[name] = prepare(name, config.for_listener(listener, name))
        except KafkaError as error:
            raise _invalid(listener, f"{name}: {error.message}") from error
    if not starts:
        raise _invalid(listener, f"sasl.enabled.mechanisms is empty: set it to some of {', '.join(MECHANISMS)}")
    return starts


def _invalid(listener: str, problem: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"listener {listener}: {problem}")


def sasl_listener(broker: Broker, config: BrokerConfig, listener: str) -> SaslListener:
    """Return the mechanisms and limits of a SASL listener. Raises KafkaError for a setting that is wrong."""
    own = config.for_listener(listener)
    mechanisms = {
        name: Mechanism(partial(start, broker), config.for_listener(listener, name).int("connections.max.reauth.ms"))
        for name, start in prepared(config, listener).items()
    }
    delay_ms = own.int("connection.failed.authentication.delay.ms")
    return SaslListener(mechanisms, own.int("sasl.server.max.receive.size"), delay_ms)


# -- PLAIN -----------------------------------------------------------------------------------------------------


def _prepare_plain(_name: str, config: BrokerConfig) -> Start:
    callback = config.text(CALLBACK_SETTING)
    if callback is not None and callback != KAFKAS_PLAIN_CALLBACK:
        found = plugins.load(CALLBACK_SETTING, callback)
        verify = _in_thread(found() if isinstance(found, type) else found)
    else:
        verify = plain.Users(_users(config))

    def start(_broker: Broker) -> SaslServer:
        return plain.PlainServer(verify)

    return start


def _users(config: BrokerConfig) -> Mapping[str, str]:
    """The users of `sasl.jaas.config`: `user_NAME="PASSWORD"`."""
    text = config.text("sasl.jaas.config")
    if not text:
        text_of_remedy = "PlainLoginModule required user_NAME=PASSWORD ...;"
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"sasl.jaas.config is missing: set it to {text_of_remedy}")
    try:
        module = jaas.parse(text)
    except SaslError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if module.short_name != "PlainLoginModule":
        problem = f"sasl.jaas.config has {module.short_name}, but PLAIN needs PlainLoginModule"
        raise KafkaError(ErrorCode.INVALID_CONFIG, problem)
    return {
        name.removeprefix("user_"): password for name, password in module.options.items() if name.startswith("user_")
    }


def _in_thread(function: Callable[[str, str], object]) -> plain.Verify:
    """Call a function that checks passwords in a thread, because it may block."""

    def verify(username: str, password: str) -> Completion[bool]:
        verified: Completion[bool] = Completion()
        loop = asyncio.get_running_loop()

        def refuse(problem: str) -> None:
            logger.warning("The function of %s %s", CALLBACK_SETTING, problem)
            verified.fail(AuthenticationError("Authentication failed: credentials for user could not be verified"))

        def finish(done: asyncio.Future[object] | Future[object]) -> None:
            deadline.cancel()
            error = None if done.cancelled() else done.exception()
            if done.cancelled() or error is not None:
                # The message of the exception may contain the password.
                refuse(f"raised {type(error).__name__}" if error is not None else "was cancelled")
            else:
                verified.complete(done.result() is True)

        deadline = loop.call_later(CALLBACK_TIMEOUT_S, refuse, f"took longer than {CALLBACK_TIMEOUT_S:g} s")
        loop.run_in_executor(None, function, username, password).add_done_callback(finish)
        return verified

    return verify


# -- SCRAM -----------------------------------------------------------------------------------------------------


def _prepare_scram(name: str, _config: BrokerConfig) -> Start:
    def start(broker: Broker) -> SaslServer:
        def find(username: str, by_token: bool) -> scram.Account | None:
            if not by_token:
                return scram_account(broker.metadata.image, name, username)
            tokens = broker.security.tokens
            return None if tokens is None else tokens.account(name, username)

        return scram.ScramExchange(name, find, secrets.token_urlsafe(_NONCE_BYTES))

    return start


def scram_account(image: MetadataImage, mechanism: str, username: str) -> scram.Account | None:
    """Return a user's credential in the metadata; None if the user has none of this mechanism."""
    record = image.scram_credentials.get((username, scram.NUMBERS[mechanism]))
    if record is None:
        return None
    credential = scram.Credential(record.salt, record.stored_key, record.server_key, record.iterations)
    return scram.Account(credential, username)


MECHANISMS: Final[dict[str, Prepare]] = {
    "PLAIN": _prepare_plain,
    "SCRAM-SHA-256": _prepare_scram,
    "SCRAM-SHA-512": _prepare_scram,
}
