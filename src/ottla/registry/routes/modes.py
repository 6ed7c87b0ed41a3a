"""`/mode`: whether schemas can be registered, globally, in contexts and for subjects."""

from __future__ import annotations

from typing import Any, Final

from ottla.registry import changes, errors
from ottla.registry.records import to_json
from ottla.registry.routes.requests import Request, body_text
from ottla.registry.routes.router import Route
from ottla.registry.settings import MODES
from ottla.registry.subjects import GLOBAL_CONTEXT, context_prefix, is_valid


def read(request: Request) -> bytes:
    """Return a mode; with `defaultToGlobal`, the mode that applies."""
    subject, settings = request.settings_subject(), request.state.settings
    mode = settings.mode_in_scope(subject) if request.flag("defaultToGlobal") else settings.mode(subject)
    if mode is None:
        raise errors.mode_not_configured(subject)
    return _body(mode)


async def update(request: Request) -> bytes:
    """Set a mode; null removes it."""
    body = await request.body()
    if request.values and not is_valid(request.values[0], for_settings=True):
        raise errors.invalid_subject(request.values[0])
    subject, force = request.settings_subject(), request.flag("force")
    mode = body_text(body, "mode")
    if mode is not None and mode.upper() not in MODES:
        raise errors.invalid_mode()
    mode = mode and mode.upper()
    if mode == "FORWARD" and subject != context_prefix(GLOBAL_CONTEXT):
        raise errors.invalid_mode("Forward mode only supported on global level")
    await request.registry.change(lambda state: changes.update_mode(state, subject, mode, force=force))
    return to_json({"mode": body.get("mode")} if "mode" in body else {})


async def delete(request: Request) -> bytes:
    """Delete a mode and return it."""
    subject, recursive = request.settings_subject(), request.flag("recursive")
    mode = await request.registry.change(lambda state: changes.delete_mode(state, subject, recursive=recursive))
    return _body(mode)


def _body(mode: str | None) -> bytes:
    body: dict[str, Any] = {} if mode is None else {"mode": mode}
    return to_json(body)


ROUTES: Final = tuple(
    Route(method, path, handler)
    for path in ("/mode", "/mode/{}")
    for method, handler in (("GET", read), ("PUT", update), ("DELETE", delete))
)
