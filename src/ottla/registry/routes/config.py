"""`/config`: compatibility levels and other settings, global, of contexts and of subjects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.registry import changes, errors
from ottla.registry.records import to_json
from ottla.registry.routes.requests import Request, body_text, metadata_of, rule_set_of
from ottla.registry.routes.router import Route
from ottla.registry.settings import FIELDS, FLAGS, LEVEL, LEVELS, METADATA, POLICIES, RULE_SETS, in_order
from ottla.registry.subjects import is_default_context, is_valid, normalize

_COMPATIBILITY: Final = "compatibility"
_POLICY: Final = "compatibilityPolicy"


def read(request: Request) -> bytes:
    """Return settings; with `defaultToGlobal`, those that apply."""
    subject, settings = request.settings_subject(), request.state.settings
    config = settings.config_in_scope(subject) if request.flag("defaultToGlobal") else settings.config(subject)
    if config is None:
        raise errors.compatibility_not_configured(str(subject))
    return to_json(config)


async def update(request: Request) -> bytes:
    """Change settings and return them."""
    change = config_change(await request.body())
    subject = None
    if request.values and not is_default_context(request.values[0]):
        if not is_valid(request.values[0], for_settings=True):
            raise errors.invalid_subject(request.values[0])
        subject = normalize(request.values[0])
    config = await request.registry.change(lambda state: changes.update_config(state, subject, change))
    return to_json(_with_alias_of_level(config))


def _with_alias_of_level(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return settings as the response to a change has them: the level is named as in the request."""
    if LEVEL not in config:
        return config
    return {(_COMPATIBILITY if name == LEVEL else name): value for name, value in config.items()}


async def delete(request: Request) -> bytes:
    """Delete settings and return them."""
    subject = request.settings_subject()
    config = await request.registry.change(lambda state: changes.delete_config(state, subject))
    return to_json(config)


def config_change(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in a body; null removes a setting. Raises RegistryError."""
    named = {**body, LEVEL: body[_COMPATIBILITY]} if _COMPATIBILITY in body else body
    return in_order({name: _setting(name, named) for name in FIELDS if name in named})


def _setting(name: str, body: Mapping[str, Any]) -> Any:
    value = body[name]
    if value is None:
        return None
    if name in METADATA:
        return metadata_of(value)
    if name in RULE_SETS:
        return rule_set_of(value)
    if name in FLAGS:
        return _flag(name, value)
    text = body_text(body, name)
    if name == LEVEL:
        if str(text).upper() not in LEVELS:
            raise errors.invalid_compatibility()
        return str(text).upper()
    if name == _POLICY:
        return str(text).upper() if str(text).upper() in POLICIES else None
    return text


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise errors.bad_request(f"{name} must be a boolean")


ROUTES: Final = tuple(
    Route(method, path, handler)
    for path in ("/config", "/config/{}")
    for method, handler in (("GET", read), ("PUT", update), ("DELETE", delete))
)
