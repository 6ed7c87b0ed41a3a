"""Subjects of the schema registry: versions, and the differences between two of them."""

from __future__ import annotations

import json
from typing import Any, Final

from ottla.common import units
from ottla.console.calls import Call, Problem, whole
from ottla.console.pages.messages import registry_of
from ottla.console.pages.topics import page_of, pager_links
from ottla.console.view import Cell, Column, Facts, Link, Page, Table, Text, number, text, url
from ottla.registry_client import RegistryClient, RegistryClientError
from ottla.tools.schema_diff import differences

_TONES = {"added": "ok", "removed": "critical", "changed": "warning"}


CRUMB: Final = ("Schemas", "/schemas")


def missing() -> Page:
    """Return the page of a console without a registry."""
    advice = "Start the console with --registry URL."
    return Page(
        "Schemas", {"error": "This console has no schema registry", "advice": advice}, lead=advice, section="schemas"
    )


def listing(call: Call) -> Page:
    """List subjects."""
    with registry_of(call) as registry:
        if registry is None:
            return missing()
        subjects = sorted(registry.get_subjects())
    wanted = call.query.get("filter", "")
    found = [subject for subject in subjects if wanted.casefold() in subject.casefold()]
    shown, paging = page_of(call, found)
    rows = [[Cell(name, url("schema", subject=name))] for name in shown]
    return Page(
        "Schemas",
        {"subjects": list(shown), **paging},
        [Table([Column("Subject")], rows, empty="There is no subject.")],
        command=call.command("schema", "list"),
        actions=[Link("Register schema", "/schemas/new", "primary")] if call.may_change else [],
        section="schemas",
        template="list.html",
        more={
            "filter": wanted,
            "links": pager_links(call, paging, filter=wanted),
            "noun": units.plural(paging["total"], "subject"),
            "kept": {},
        },
    )


def subject(call: Call) -> Page:
    """Show a version of a subject, and its differences from the previous one, or from `from`."""
    name = call.query.get("subject", "")
    if not name:
        raise Problem(400, "No subject is given", "The address is /schema?subject=SUBJECT.")
    with registry_of(call) as registry:
        if registry is None:
            return missing()
        versions = registry.get_versions(name)
        version = call.number("version", versions[-1], 2**31 - 1)
        earlier = [each for each in versions if each < version]
        since = whole("from", call.query["from"]) if call.query.get("from") else earlier[-1] if earlier else None
        found = registry.get_version(name, version)
        before = None if since is None else registry.get_version(name, since)
        level = _level(registry, name)
    changes = [] if before is None else differences(before.schema, found.schema)
    facts = Facts(
        [
            ("Type", text(found.schema.type.value)),
            ("Id", number(found.id)),
            ("Version", number(version)),
            ("Compatibility", text(level)),
        ]
    )
    parts: list[Any] = [facts]
    if before is not None:
        rows = [
            [Cell(change.kind, tone=_TONES[change.kind]), text(change.field), text(change.before), text(change.after)]
            for change in changes
        ]
        columns = [Column("Change"), Column("Field", mono=True), Column("Before"), Column("After")]
        parts.append(Table(columns, rows, title=f"Changes since version {since}", empty="No differences."))
    parts.append(Text(pretty(found.schema.text), title="Schema"))
    return Page(
        name,
        {
            "subject": name,
            "version": version,
            "versions": versions,
            "id": found.id,
            "type": found.schema.type.value,
            "schema": found.schema.text,
            "compatibility": level,
            "compared_with": since,
            "changes": [change._asdict() for change in changes],
        },
        parts,
        command=call.command("schema", "diff", name),
        crumbs=[CRUMB],
        actions=_changes(call, name, version),
        tabs=[
            Link(f"v{each}", url("schema", subject=name, version=each), current=each == version) for each in versions
        ],
        section="schemas",
    )


def _changes(call: Call, name: str, version: int) -> list[Link]:
    if not call.may_change:
        return []
    return [
        Link("New version", url("schemas", "new", subject=name)),
        Link(f"Delete v{version}", url("schema", "delete", subject=name, version=version), "danger"),
        Link("Delete subject", url("schema", "delete", subject=name), "danger"),
    ]


def _level(registry: RegistryClient, name: str) -> str | None:
    try:
        return str(registry.get_config(name, default_to_global=True).get("compatibilityLevel"))
    except RegistryClientError:
        return None  # this user may read the subject, but not its configuration


def pretty(schema: str) -> str:
    """Return the text of a schema with line breaks, if it is JSON."""
    try:
        return json.dumps(json.loads(schema), indent=2, ensure_ascii=False)
    except ValueError:
        return schema
