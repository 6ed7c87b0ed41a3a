"""Shared by the verbs of `ottla mirror`: mirrors and their topics by name, reports, the source, and waiting."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import click

from ottla.cli.commands import Options
from ottla.cli.names import all_topics, check_exists, enumerated
from ottla.cli.output import Output
from ottla.clients import admin as api
from ottla.clients.admin import ConfigResource, ResourceType
from ottla.clients.errors import BrokerError, ClientError
from ottla.common.errors import ErrorCode
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition
from ottla.metadata.mirrors import MIRROR_SETTING, STATE_SETTING, TopicNames
from ottla.tools.admin.mirrors import MirrorReport
from ottla.tools.values import read_properties

POLL_S: Final = 0.3
NOTE_S: Final = 5.0
"""The time between two notes about what a command waits for."""


def connect_to_source(options: Options, target: api.Admin) -> api.Admin:
    """Connect an admin client to the source of the mirror until the end of the command."""
    check_exists(options.name, mirror_names(target), "mirror")
    settings = target.describe_config(resource_of(options.name))
    given = {} if options.source_config is None else read_properties(options.source_config)
    protocol = settings["security.protocol"].value
    if protocol != "PLAINTEXT" and not given:
        raise Failure(
            f"the source of {options.name!r} needs {protocol}, and its passwords cannot be read from the mirror",
            "Pass --source-config with the properties of a client of the source.",
            exit_code=2,
        )
    source = api.Admin({**given, "bootstrap.servers": settings["bootstrap.servers"].value})
    try:
        return click.get_current_context().with_resource(source)
    except ClientError as error:
        raise Failure(
            f"the source of mirror {options.name!r} does not answer: {error}",
            f"`ottla mirror why {options.name}` says whether the brokers reach it; this machine must, too.",
        ) from error


def resource_of(name: str) -> ConfigResource:
    """The mirror as a resource with settings."""
    return ConfigResource(ResourceType.MIRROR, name)


def mirror_names(admin: api.Admin) -> list[str]:
    """The names of all mirrors, sorted. Raises Failure if the cluster is not Ottla, and so has none."""
    try:
        return sorted(each.name for each in admin.list_config_resources([ResourceType.MIRROR]))
    except BrokerError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        raise Failure(
            "this cluster cannot have a mirror, since it is not Ottla",
            "The commands connect to the target of a mirror (-b); --from of `ottla mirror create` is its source.",
        ) from error


def report_of(admin: api.Admin, name: str) -> MirrorReport:
    """The state of a mirror on all brokers. Raises Failure if it does not exist."""
    check_exists(name, mirror_names(admin), "mirror")
    return MirrorReport.of(admin.mirror_status(name))


def states_of_topics(admin: api.Admin) -> dict[str, tuple[str, str]]:
    """The mirror and state of each topic."""
    resources = [ConfigResource(ResourceType.TOPIC, each.name) for each in admin.list_topics()]
    found = admin.describe_configs(resources, names=[MIRROR_SETTING, STATE_SETTING]) if resources else {}
    return {
        resource.name: (settings[MIRROR_SETTING].value or "", settings[STATE_SETTING].value or "")
        for resource, settings in found.items()
        if MIRROR_SETTING in settings
    }


def topics_in(admin: api.Admin, mirror: str, *states: str) -> list[str]:
    """The topics of a mirror in these states. Raises Failure if it does not exist."""
    check_exists(mirror, mirror_names(admin), "mirror")
    return sorted(
        name for name, (owner, state) in states_of_topics(admin).items() if owner == mirror and state in states
    )


def move(admin: api.Admin, mirror: str, topics: list[str], state: str) -> None:
    """Change the state of topics of a mirror."""
    changes = {MIRROR_SETTING: mirror, STATE_SETTING: state}
    if topics:
        admin.alter_configs({ConfigResource(ResourceType.TOPIC, name): changes for name in topics})


def rows_of(admin: api.Admin, mirror: str, topics: list[str]) -> list[dict[str, Any]]:
    """The reported partitions of these topics."""
    return [row for row in report_of(admin, mirror).partitions if row["topic"] in topics]


def partitions_of(admin: api.Admin, topics: list[str]) -> list[tuple[str, int]]:
    """All partitions of these topics."""
    listed = all_topics(admin)
    return [(name, index) for name in topics for index in range(listed[name].partitions)]


def names_of(admin: api.Admin, mirror: str) -> TopicNames:
    """The names of the topics of a mirror in both clusters."""
    settings = admin.describe_config(resource_of(mirror))
    return TopicNames.of({name: entry.value or "" for name, entry in settings.items()})


def at_source(mirror: str, target: api.Admin, topics: list[str]) -> dict[TopicPartition, TopicPartition]:
    """The partitions of topics of a mirror, and their names at the source."""
    names = names_of(target, mirror)
    return {
        TopicPartition(topic, index): TopicPartition(names.at_source(topic), index)
        for topic, index in partitions_of(target, topics)
    }


def wait_for_all(output: Output, remaining: Callable[[], list[str]], deadline_s: float, problem: str) -> None:
    """Wait until no partition remains, and print which ones do. Raises Failure after the deadline."""
    next_note_s = time.monotonic() + NOTE_S
    while names := remaining():
        now_s = time.monotonic()
        if now_s > deadline_s:
            raise Failure(f"{enumerated(names)}: {problem}", "`ottla mirror why` explains it.")
        if now_s > next_note_s:
            output.note(f"Waiting for {enumerated(names)}.")
            next_note_s = now_s + NOTE_S
        time.sleep(POLL_S)
