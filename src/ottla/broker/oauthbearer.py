"""OAUTHBEARER on a broker: from the settings of a listener to a function that validates tokens. KIP-255, 768, 1139.

`sasl.server.callback.handler.class` selects how tokens are validated:

- by default, or with Kafka's OAuthBearerValidatorCallbackHandler, by the keys at `sasl.oauthbearer.jwks.endpoint.url`;
- with Kafka's OAuthBearerUnsecuredValidatorCallbackHandler, without any signature: for tests only. Stock Kafka uses it
  by default; here it must be configured;
- with an entry point or `module:attribute`, by a function of the operator, in a thread. `sasl.oauthbearer.jwt.
  validator.class` is another name for that.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.jwks import Endpoint, KeySource, RefreshTimes, in_thread
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.rate_limit import RateLimitedLog
from ottla.network import plugins
from ottla.security import jaas, jwt
from ottla.security.jwt import Expectations, KeySet, TokenRejected, UnknownKey, UnsecuredRules, ValidToken
from ottla.security.mechanism import SaslError, SaslServer
from ottla.security.oauthbearer import OAuthBearerServer, Validate

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.common.clock import Clock
    from ottla.config import BrokerConfig

logger = logging.getLogger(__name__)

HANDLER: Final = "sasl.server.callback.handler.class"
VALIDATOR: Final = "sasl.oauthbearer.jwt.validator.class"
JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
UNSECURED_HANDLER: Final = f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
_SECURED_HANDLERS: Final = (
    f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler",
    # The names before Kafka 4.0.
    f"{_PACKAGE}.secured.OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}.internals.secured.OAuthBearerValidatorCallbackHandler",
)
_VALIDATORS: Final = (f"{_PACKAGE}.DefaultJwtValidator", f"{_PACKAGE}.BrokerJwtValidator")
_DEFAULT_TIMEOUT_S: Final = 10.0

Open = Callable[["Broker"], Callable[[], SaslServer]]


def prepare(config: BrokerConfig) -> Open:
    """Check the settings of a listener. Raises KafkaError (INVALID_CONFIG)."""
    handler, validator = config.text(HANDLER), config.text(VALIDATOR)
    if handler == UNSECURED_HANDLER:
        return _unsecured(config)
    if handler is not None and handler not in _SECURED_HANDLERS:
        return _custom(HANDLER, handler)
    if validator is not None and validator not in _VALIDATORS:
        return _custom(VALIDATOR, validator)
    return _signed(config)


def _invalid(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, problem)


def _exchanges(validate: Validate) -> Callable[[], SaslServer]:
    """Start exchanges that validate tokens, and log the reasons of rejections."""
    log = RateLimitedLog(logger)
    report = partial(log.info, "Rejected an OAUTHBEARER token: %s")
    return lambda: OAuthBearerServer(validate, report)


# -- signed tokens ---------------------------------------------------------------------------------------------


def _signed(config: BrokerConfig) -> Open:
    url = config.text(JWKS_URL)
    if not url:
        raise _invalid(
            f"{JWKS_URL} is missing: set it to the key set (JWKS) of the authorization server. For tests with unsecured"
            f" tokens set {HANDLER}={UNSECURED_HANDLER}"
        )
    if importlib.util.find_spec("jwt") is None or importlib.util.find_spec("cryptography") is None:
        raise _invalid("OAUTHBEARER needs PyJWT and cryptography: install them with pip install 'ottla[security]'")
    endpoint = Endpoint(url, _timeout_s(config), _module_options(config).get("ssl.truststore.location"))
    problem = endpoint.check()
    if problem:
        raise _invalid(f"{JWKS_URL}: {problem}")
    times = RefreshTimes(
        config.int("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        config.int("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        config.int("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
    )
    problem = times.check()
    if problem:
        raise _invalid(problem)
    expected = _expectations(config)

    def open_for(broker: Broker) -> Callable[[], SaslServer]:
        source = KeySource(url, partial(in_thread, endpoint), times, broker.schedulers.call_later, broker.clock)
        source.begin()
        broker.security.on_close.append(source.close)
        return _exchanges(partial(validate_signed, source, expected, broker.clock))

    return open_for


def _expectations(config: BrokerConfig) -> Expectations:
    return Expectations(
        audience=config.items("sasl.oauthbearer.expected.audience"),
        issuer=config.text("sasl.oauthbearer.expected.issuer"),
        clock_skew_s=config.int("sasl.oauthbearer.clock.skew.seconds"),
        subject_claim=config.text("sasl.oauthbearer.sub.claim.name") or "sub",
        scope_claim=config.text("sasl.oauthbearer.scope.claim.name") or "scope",
    )


def _timeout_s(config: BrokerConfig) -> float:
    given = [config["sasl.login.connect.timeout.ms"], config["sasl.login.read.timeout.ms"]]
    numbers = [each / 1000 for each in given if isinstance(each, int) and each > 0]
    return max(numbers, default=_DEFAULT_TIMEOUT_S)


def validate_signed(
    source: KeySource, expected: Expectations, clock: Clock, token: str
) -> ValidToken | Completion[ValidToken]:
    """Validate a token with the latest keys, or with newer ones if its key is unknown."""

    def check(keys: KeySet | None) -> ValidToken:
        if keys is None:
            raise TokenRejected("the keys of the authorization server could not be retrieved")
        return jwt.verify(token, keys, expected, clock.wall_ms())

    current = source.current()
    if not current.done:
        return current.then(check)
    try:
        return check(current.result())
    except UnknownKey:
        newer = source.newer()
        if newer.done and newer.result() is current.result():
            raise
        return newer.then(check)


# -- other tokens ----------------------------------------------------------------------------------------------


def _unsecured(config: BrokerConfig) -> Open:
    try:
        rules = UnsecuredRules.from_options(_module_options(config))
    except ValueError as error:
        raise _invalid(f"sasl.jaas.config: {error}") from error

    def open_for(broker: Broker) -> Callable[[], SaslServer]:
        logger.warning(
            "Accepting OAUTHBEARER tokens without a signature: any client can log in as any user. For tests only"
        )
        return _exchanges(lambda token: jwt.verify_unsecured(token, rules, broker.clock.wall_ms()))

    return open_for


def _custom(setting: str, name: str) -> Open:
    found = plugins.load(setting, name)
    function = found() if isinstance(found, type) else found
    if not callable(function):
        raise _invalid(f"{setting}={name} is not a function: it must take a token and return a ValidToken")

    def decide(done: Completion[Any]) -> ValidToken:
        if isinstance(done.error, TokenRejected):
            raise done.error
        if done.error is not None:
            raise TokenRejected(f"the function of {setting} failed: {plugins.failure(done.error)}")
        valid = done.result()
        if not isinstance(valid, ValidToken):
            raise TokenRejected(f"the function of {setting} returned a {type(valid).__name__}, not a ValidToken")
        return valid

    def validate(token: str) -> Completion[ValidToken]:
        validated: Completion[ValidToken] = Completion()
        plugins.call_in_thread(function, token).on_done(lambda done: validated.complete_with(decide, done))
        return validated

    return lambda _broker: _exchanges(validate)


def _module_options(config: BrokerConfig) -> dict[str, str]:
    """The options of OAuthBearerLoginModule in `sasl.jaas.config`, which is not necessary."""
    text = config.text("sasl.jaas.config")
    if not text:
        return {}
    try:
        module = jaas.parse(text)
    except SaslError as error:
        raise _invalid(str(error)) from None
    if module.short_name != "OAuthBearerLoginModule":
        raise _invalid(f"sasl.jaas.config has {module.short_name}, but OAUTHBEARER needs OAuthBearerLoginModule")
    return module.options
