"""Changes of topics: create, alter, delete. Each is a form with a question, then a POST."""

from __future__ import annotations

from ottla.clients import admin as api
from ottla.common import units
from ottla.console.calls import Call, Done, Problem, whole
from ottla.console.pages.topics import CRUMB, name_of
from ottla.console.view import Field, Form, Page, confirmation, url


def create(call: Call) -> Page | Done:
    """Create a topic."""
    if not call.form:
        call.check_may_change()
        form = Form(
            "/topics/new",
            "Create topic",
            [
                Field("name", "Name", required=True),
                Field("partitions", "Partitions", hint="empty: the brokers' default"),
                Field("replicas", "Replicas", hint="empty: the brokers' default"),
                Field("config", "Settings", type="area", hint="one NAME=VALUE in each line"),
            ],
        )
        return Page(
            "Create a topic",
            {"fields": [field.name for field in form.fields]},
            [form],
            command=call.command("topic", "create", "NAME", "--partitions", "6"),
            crumbs=[CRUMB],
            section="topics",
        )
    name = call.form.get("name", "").strip()
    partitions, replicas = (_number_or_default(call, field) for field in ("partitions", "replicas"))
    created = call.admin.create_topic(
        name,
        partitions=partitions,
        replication_factor=replicas,
        config=_assignments(call.form.get("config", "")),
    )
    call.session.cached.forget()
    return Done(url("topics", name), "created", {"topic": name, "topic_id": created.topic_id})


def alter(call: Call) -> Page | Done:
    """Change settings, or add partitions."""
    name = name_of(call)
    if call.form:
        return _alter(call, name)
    call.check_may_change()
    count = len(call.admin.describe_topic(name).partitions)
    target = url("topics", name, "alter")
    settings = Form(
        target,
        "Change settings",
        [
            Field(
                "config",
                "Settings",
                type="area",
                hint="one NAME=VALUE in each line; NAME= alone restores the default",
                required=True,
            )
        ],
        title="Settings",
    )
    partitions = Form(
        target,
        "Add partitions",
        [Field("partitions", "Partitions", str(count), type="number", required=True)],
        title="Partitions",
        note="The number of partitions cannot decrease. Records with the same key may go to another partition then.",
    )
    return Page(
        f"Alter {name}",
        {"topic": name, "partition_count": count},
        [settings, partitions],
        command=call.command("topic", "alter", name, "--config", "retention.ms=86400000"),
        crumbs=[CRUMB, (name, url("topics", name))],
        section="topics",
    )


def _alter(call: Call, name: str) -> Done:
    if "partitions" in call.form:
        count = whole("partitions", call.form["partitions"], 1_000_000)
        call.admin.create_partitions({name: count})
        call.session.cached.forget()
        return Done(url("topics", name), "added", {"topic": name, "partition_count": count})
    changes = {key: value or None for key, value in _assignments(call.form.get("config", "")).items()}
    if not changes:
        raise Problem(400, "No setting is given", "Write NAME=VALUE.")
    call.admin.alter_config(api.ConfigResource.topic(name), changes)
    call.session.cached.forget()
    return Done(url("topics", name, "settings"), "altered", {"topic": name, "settings": changes})


def delete(call: Call) -> Page | Done:
    """Delete a topic, after its name was typed."""
    name = name_of(call)
    if call.form:
        call.check_confirmed(name)
        call.admin.delete_topic(name)
        call.session.cached.forget()
        return Done("/topics", "deleted", {"topic": name})
    call.check_may_change()
    described = call.admin.describe_topic(name)
    note = "The topic and all its records are deleted on all brokers. This cannot be undone."
    form = confirmation(url("topics", name, "delete"), f"Delete {name}", "topic", note)
    return Page(
        f"Delete {name}?",
        {"topic": name, "partition_count": len(described.partitions)},
        [form],
        command=call.command("topic", "delete", name),
        crumbs=[CRUMB, (name, url("topics", name))],
        lead=f"It has {units.plural(len(described.partitions), 'partition')}.",
        tone="warning",
        section="topics",
    )


def _number_or_default(call: Call, name: str) -> int:
    given = call.form.get(name, "").strip()
    return whole(name, given, 1_000_000) if given else -1


def _assignments(given: str) -> dict[str, str]:
    found = {}
    for line in filter(None, map(str.strip, given.splitlines())):
        name, separator, value = line.partition("=")
        if not separator or not name.strip():
            raise Problem(400, f"{line[:80]!r} is not a setting", "Write NAME=VALUE.")
        found[name.strip()] = value.strip()
    return found
