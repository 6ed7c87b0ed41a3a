"""Changes of subjects: register a schema after the registry's check, and delete a version or a subject."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.console.calls import Call, Done, Problem, whole
from ottla.console.pages.messages import registry_of
from ottla.console.pages.schemas import CRUMB, missing, pretty
from ottla.console.view import Field, Form, Page, confirmation, url
from ottla.registry_client import RegistryClient, Schema, SchemaRegistryError
from ottla.schemas.model import SchemaType

_TYPES: Final = tuple((each.value, each.value) for each in SchemaType)
_LONGEST_SUBJECT: Final = 1_000
_FAULTY: Final = (409, 422)


def register(call: Call) -> Page | Done:
    """Register the next version of a subject, or the first one."""
    call.check_may_change()
    with registry_of(call) as registry:
        if registry is None:
            return missing()
        if not call.form:
            return _form(call, _latest(registry, call.query.get("subject", "")), ())
        given = {name: call.form.get(name, "") for name in ("subject", "type", "schema")}
        name = given["subject"] = given["subject"].strip()
        if not name or len(name) > _LONGEST_SUBJECT:
            raise Problem(400, "The subject is missing, or too long")
        if given["type"] not in dict(_TYPES):
            raise Problem(400, f"{given['type'][:40]!r} is not a type", f"It is one of {', '.join(dict(_TYPES))}.")
        schema = Schema(SchemaType(given["type"]), given["schema"])
        faults = _faults(registry, name, schema)
        if faults:
            return _form(call, given, faults)
        registered = registry.register_schema_full_response(name, schema)
        if registered.version is None:
            registered = registry.lookup_schema(name, schema)
    data = {"subject": name, "version": registered.version, "id": registered.id}
    return Done(url("schema", subject=name), "registered", data)


def _latest(registry: RegistryClient, name: str) -> dict[str, str]:
    """Return the latest version as the text to begin with; empty fields for a new subject."""
    if not name:
        return {"subject": "", "type": "", "schema": ""}
    try:
        found = registry.get_latest_version(name).schema
    except SchemaRegistryError as error:
        if error.http_status_code != 404:
            raise
        return {"subject": name, "type": "", "schema": ""}
    return {"subject": name, "type": found.type.value, "schema": pretty(found.text)}


def _faults(registry: RegistryClient, name: str, schema: Schema) -> list[str]:
    """Return why the registry would refuse a schema: all reasons."""
    try:
        is_compatible, messages = registry.test_compatibility(name, schema, None)
    except SchemaRegistryError as error:
        if error.http_status_code == 404:
            return []  # a new subject
        if error.http_status_code not in _FAULTY:
            raise
        return [str(error)]
    return [] if is_compatible else list(messages) or ["It is not compatible with the earlier versions."]


def _form(call: Call, given: dict[str, str], faults: Sequence[str]) -> Page:
    fields = [
        Field("subject", "Subject", given["subject"], required=True, hint="of the values of a topic: TOPIC-value"),
        Field("type", "Type", given["type"], "select", options=_TYPES),
        Field("schema", "Schema", given["schema"], "area", required=True, error="\n".join(faults)),
    ]
    return Page(
        "Register a schema",
        {"subject": given["subject"] or None, "faults": list(faults)},
        [Form("/schemas/new", "Register", fields)],
        command=call.command("schema", "register", "FILE", "--subject", given["subject"] or "SUBJECT"),
        crumbs=[CRUMB],
        lead="Nothing was registered." if faults else "",
        tone="critical" if faults else "",
        status=400 if faults else 200,
        section="schemas",
    )


def delete(call: Call) -> Page | Done:
    """Delete a version, or a subject, after the subject's name was typed. `permanent` is the second deletion."""
    call.check_may_change()
    name, version = call.query.get("subject", ""), call.query.get("version", "")
    is_permanent = call.query.get("permanent") == "1"
    if not name:
        raise Problem(400, "No subject is given", "The address is /schema/delete?subject=SUBJECT.")
    number = whole("version", version, 2**31 - 1) if version else None
    with registry_of(call) as registry:
        if registry is None:
            return missing()
        if not call.form:
            return _question(call, name, number, registry, is_permanent=is_permanent)
        call.check_confirmed(name)
        if number is None:
            deleted = registry.delete_subject(name, permanent=is_permanent)
        else:
            deleted = [registry.delete_version(name, number, permanent=is_permanent)]
    return Done("/schemas", "deleted", {"subject": name, "versions": deleted, "permanent": is_permanent})


def _question(call: Call, name: str, version: int | None, registry: RegistryClient, *, is_permanent: bool) -> Page:
    known = registry.get_versions(name, deleted_only=True) if is_permanent else registry.get_versions(name)
    if version is not None and version not in known:
        raise Problem(404, f"{name} has no version {version}")
    chosen = known if version is None else [version]
    what = name if version is None else f"version {version} of {name}"
    target = url("schema", "delete", subject=name, version=version, permanent="1" if is_permanent else None)
    note = (
        "The schemas are deleted for good: records with their ids can no longer be read."
        if is_permanent
        else "The ids stay known, so that records with them can be read. A permanent deletion may follow."
    )
    form = confirmation(target, "Delete", "subject", note)
    words = [*(["--version", str(version)] if version is not None else []), *(["--permanent"] if is_permanent else [])]
    return Page(
        f"Delete {what}{' for good' if is_permanent else ''}?",
        {"subject": name, "versions": chosen, "permanent": is_permanent},
        [form],
        command=call.command("schema", "delete", name, *words),
        crumbs=[CRUMB, (name, url("schema", subject=name))],
        section="schemas",
    )
