"""The SASL mechanisms of a broker: from the settings of a listener to exchanges.

`MECHANISMS` has a function for each mechanism. It checks the settings of one listener, without a broker, and returns
a function that starts an exchange. Another mechanism is another entry of this table.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.broker import late
from ottla.broker.authentication import Mechanism, SaslListener
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.network import plugins
from ottla.security import jaas, plain, scram
from ottla.security.mechanism import AuthenticationError, SaslError, SaslServer

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.config import BrokerConfig
    from ottla.metadata.image import MetadataImage

logger = logging.getLogger(__name__)

Open: TypeAlias = "Callable[[Broker], Callable[[], SaslServer]]"
"""Opens the mechanism for a broker that starts; returns a function that starts an exchange with a client."""
Prepare: TypeAlias = "Callable[[str, BrokerConfig], Open]"
"""Checks the settings of a mechanism, given its name; raises KafkaError (INVALID_CONFIG)."""

CALLBACK_SETTING: Final = "sasl.server.callback.handler.class"
KAFKAS_PLAIN_CALLBACK: Final = "org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler"
_NONCE_BYTES: Final = 24
_NO_KERBEROS: Final = "GSSAPI (Kerberos) is not supported"


def prepared(config: BrokerConfig, listener: str) -> dict[str, Open]:
    """Return the enabled mechanisms of a listener, in their order. Raises KafkaError for a setting that is wrong."""
    enabled = config.for_listener(listener).items("sasl.enabled.mechanisms")
    found: dict[str, Open] = {}
    for name in enabled:
        prepare = MECHANISMS.get(name)
        if prepare is None:
            problem = _NO_KERBEROS if name == "GSSAPI" else f"{name} is not a known mechanism"
            raise _invalid(listener, f"{problem}: set sasl.enabled.mechanisms to some of {', '.join(MECHANISMS)}")
        try:
            found[name] = prepare(name, config.for_listener(listener, name))
        except KafkaError as error:
            raise _invalid(listener, f"{name}: {error.message}") from error
    if not found:
        raise _invalid(listener, f"sasl.enabled.mechanisms is empty: set it to some of {', '.join(MECHANISMS)}")
    return found


def _invalid(listener: str, problem: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"listener {listener}: {problem}")


def sasl_listener(broker: Broker, config: BrokerConfig, listener: str) -> SaslListener:
    """Return the mechanisms and limits of a SASL listener. Raises KafkaError for a setting that is wrong."""
    own = config.for_listener(listener)
    mechanisms = {
        name: Mechanism(open_mechanism(broker), config.for_listener(listener, name).int("connections.max.reauth.ms"))
        for name, open_mechanism in prepared(config, listener).items()
    }
    delay_ms = own.int("connection.failed.authentication.delay.ms")
    return SaslListener(mechanisms, own.int("sasl.server.max.receive.size"), delay_ms)


def starting_listener(broker: Broker, listener: str) -> SaslListener:
    """Return a listener of a node that starts: with the dynamic settings, or the static ones if those are wrong."""
    settings = broker.settings
    try:
        return sasl_listener(broker, settings.current, listener)
    except KafkaError as error:
        logger.warning("Ignoring the dynamic settings of SASL: %s", error.message)
        return sasl_listener(broker, settings.static, listener)


# -- PLAIN -----------------------------------------------------------------------------------------------------


def _prepare_plain(_name: str, config: BrokerConfig) -> Open:
    callback = config.text(CALLBACK_SETTING)
    if callback is not None and callback != KAFKAS_PLAIN_CALLBACK:
        found = plugins.load(CALLBACK_SETTING, callback)
        verify = _in_thread(found() if isinstance(found, type) else found)
    else:
        verify = plain.Users(_users(config))

    return lambda _broker: lambda: plain.PlainServer(verify)


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

        def decide(done: Completion[Any]) -> bool:
            if done.error is None:
                return done.result() is True
            # The message of the exception may contain the password.
            logger.warning("The function of %s failed: %s", CALLBACK_SETTING, plugins.failure(done.error))
            raise AuthenticationError("Authentication failed: credentials for user could not be verified")

        called = plugins.call_in_thread(function, username, password)
        called.on_done(lambda done: verified.complete_with(decide, done))
        return verified

    return verify


# -- SCRAM -----------------------------------------------------------------------------------------------------


def _prepare_scram(name: str, _config: BrokerConfig) -> Open:
    def open_for(broker: Broker) -> Callable[[], SaslServer]:
        def find(username: str, by_token: bool) -> scram.Account | None:
            if not by_token:
                return scram_account(broker.metadata.image, name, username)
            tokens = broker.security.tokens
            return None if tokens is None else tokens.account(name, username)

        return lambda: scram.ScramExchange(name, find, secrets.token_urlsafe(_NONCE_BYTES))

    return open_for


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
    "OAUTHBEARER": lambda _, config: late.oauthbearer.prepare(config),
}
