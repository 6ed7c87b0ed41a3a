"""List, show, register, check, compare and delete schemas of a registry, and change its compatibility levels.

They work with Ottla's registry (`ottla registry serve`), Confluent's and others with the same REST API.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from ottla.cli.commands import Argument, Choice, Group, Option, Options, quiet_option, usage_error, yes_option
from ottla.cli.connect import connect, connection_options
from ottla.cli.names import confirm_deletion
from ottla.cli.output import Column, Output, number, one_line, output_options
from ottla.cli.registry_options import open_registry, read_schema, registry_option, type_option
from ottla.common.failure import Failure
from ottla.registry_client.errors import SchemaRegistryError
from ottla.registry_client.model import RegisteredSchema
from ottla.schemas.model import Schema, SchemaType
from ottla.tools.schema_diff import Change, differences
from ottla.tools.schema_readers import GroupReader, broken_readers, group_readers

if TYPE_CHECKING:
    from ottla.registry_client import RegistryClient

LEVELS = (
    "backward", "backward_transitive", "forward", "forward_transitive", "full", "full_transitive", "none",
)  # fmt: skip
MODES = ("readwrite", "readonly", "readonly_override", "import")

COMMAND = Group(
    __doc__,
    """
    ottla schema list
    ottla schema register order.avsc --subject orders-value
    ottla schema get orders-value
    ottla schema diff orders-value order.avsc
    ottla schema check order.avsc --subject orders-value --consumers
    ottla schema config orders-value --compatibility full
    """,
    metavar="VERB",
)


def _shared() -> list[Any]:
    return [*output_options(), registry_option(), *connection_options("admin", "registry")]


def _subject(*, required: bool = True) -> Argument:
    return Argument("subject", "SUBJECT", required=required, help="the subject, such as orders-value")


def _file() -> Argument:
    return Argument("file", "FILE", help="a file with the schema")


def _subject_option() -> Option:
    return Option("-s, --subject SUBJECT", "the subject, such as orders-value", required=True)


def _references() -> Option:
    return Option(
        "--reference NAME=SUBJECT:VERSION", "a schema that FILE uses; may be repeated", multiple=True, name="references"
    )


@COMMAND.verb(
    "list",
    _subject(required=False),
    Option("--deleted", "also what is deleted softly"),
    quiet_option("subjects"),
    *_shared(),
    examples="""
    ottla schema list                     subjects
    ottla schema list orders-value        the versions of a subject
    ottla schema list -q
    """,
    summary="list subjects, or the versions of one",
    aliases=("ls",),
)
def _list(options: Options) -> None:
    """List the subjects with their latest versions, or all versions of one subject."""
    client, output = open_registry(options), Output(options)
    if options.subject is not None:
        versions = client.get_versions(options.subject, deleted=options.deleted)
        found = [client.get_version(options.subject, version, deleted=options.deleted) for version in versions]
        rows = [_row(each) for each in found]
    elif options.quiet and not options.json:
        rows = [{"subject": subject} for subject in client.get_subjects(deleted=options.deleted)]
    else:
        rows = [_row(each) for each in _latest(client, deleted=options.deleted)]
    columns = [Column("subject", narrow=True), number("version"), number("id"), Column("type")]
    output.listing("subject", columns, rows, empty="There are no schemas.")


def _latest(client: RegistryClient, *, deleted: bool) -> list[RegisteredSchema]:
    try:
        return client.get_schemas(latestOnly=True, deleted=deleted)
    except SchemaRegistryError as error:
        if error.http_status_code not in (404, 405):
            raise
    return [client.get_latest_version(subject) for subject in client.get_subjects(deleted=deleted)]


def _row(registered: RegisteredSchema) -> dict[str, Any]:
    return {
        "subject": registered.subject,
        "version": registered.version,
        "id": registered.id,
        "type": registered.schema.type.value,
    }


@COMMAND.verb(
    "get",
    _subject(required=False),
    Option("--version N", "the version; default: latest", default="latest"),
    Option("--id N", "the schema with this id, instead of a subject", type=int, name="schema_id"),
    Option("--raw", "the text as it is stored, on one line"),
    *_shared(),
    examples="""
    ottla schema get orders-value
    ottla schema get orders-value --version 2
    ottla schema get --id 1
    """,
    aliases=("describe", "show"),
)
def _get(options: Options) -> None:
    """Print a schema."""
    client, output = open_registry(options), Output(options)
    if (options.schema_id is None) == (options.subject is None):
        raise usage_error("one of SUBJECT and --id is required")
    if options.schema_id is not None:
        schema = client.get_schema(options.schema_id)
        row: dict[str, Any] = {"id": options.schema_id, "type": schema.type.value}
    else:
        registered = client.get_version(options.subject, _version(options.version))
        schema, row = registered.schema, _row(registered)
    row |= {"schema": schema.text, "references": [each._asdict() for each in schema.references]}
    if output.json:
        output.object(row)
        return
    output.note(", ".join(f"{name} {row[name]}" for name in ("subject", "version", "id", "type") if name in row))
    for line in (schema.text if options.raw else _pretty(schema)).splitlines():
        output.line(one_line(line))


def _pretty(schema: Schema) -> str:
    if schema.type is SchemaType.PROTOBUF:
        return schema.text
    return json.dumps(json.loads(schema.text), indent=2, ensure_ascii=False)


def _version(text: str) -> int | str:
    if text == "latest":
        return text
    if not text.isdecimal():
        raise Failure(f"--version is {text!r}; it must be a number or latest", exit_code=2)
    return int(text)


@COMMAND.verb(
    "register",
    _file(),
    _subject_option(),
    type_option(),
    _references(),
    Option("--normalize", "normalize the schema first"),
    *_shared(),
    examples="""
    ottla schema register order.avsc --subject orders-value
    ottla schema register order.proto -s orders --reference item.proto=items:1
    """,
    aliases=("create", "add"),
)
def _register(options: Options) -> None:
    """Register a schema under a subject. A schema that is registered already keeps its id."""
    client, output = open_registry(options), Output(options)
    schema = _read(options)
    registered = client.register_schema_full_response(options.subject, schema, normalize=options.normalize)
    if registered.version is None:
        registered = client.lookup_schema(options.subject, schema, normalize=options.normalize)
    row = _row(registered)
    output.changed(f"{options.subject}: version {registered.version}, id {registered.id}", row)


def _read(options: Options) -> Schema:
    return read_schema(os.fsdecode(options.file), options.schema_type, options.references)


@COMMAND.verb(
    "check",
    _file(),
    _subject_option(),
    type_option(),
    _references(),
    Option("--version N", "compare with this version; default: as the subject's compatibility level says"),
    Option("--consumers", "also name the consumer groups whose reader schemas could not read the new values"),
    *_shared(),
    examples="""
    ottla schema check order.avsc --subject orders-value
    ottla schema check order.avsc --subject orders-value --consumers
    """,
    aliases=("test", "compatibility"),
)
def _check(options: Options) -> int:
    """Check a schema without registering it. The exit code is 1 if it is incompatible or would break a group.

    With --consumers, the groups are found by the reader schemas that Ottla's deserializers report with the committed
    offsets of their consumers.
    """
    client, output = open_registry(options), Output(options)
    schema = _read(options)
    version = None if options.version is None else _version(options.version)
    try:
        result = client.test_compatibility(options.subject, schema, version)
        is_compatible, messages = result.is_compatible, list(result.messages)
    except SchemaRegistryError as error:
        if error.error_code not in (40401, 40402):
            raise
        is_compatible, messages = True, []
        output.note(f"subject {options.subject} has no versions yet")
    row: dict[str, Any] = {"subject": options.subject, "compatible": is_compatible, "messages": messages}
    broken: list[tuple[GroupReader, list[str]]] = []
    if options.consumers:
        found = group_readers(connect(options), options.subject)
        broken = broken_readers(found.readers, schema, client)
        row |= {
            "breaks": [
                {"group": reader.group, "state": reader.state, "topic": reader.topic, "reasons": reasons}
                for reader, reasons in broken
            ],
            "without_report": found.without_report,
        }
    output.done("", row) if output.json else _show(output, options, row)
    return 0 if is_compatible and not broken else 1


def _show(output: Output, options: Options, row: dict[str, Any]) -> None:
    style = output.style
    text = f"{options.subject}: compatible" if row["compatible"] else f"{options.subject}: incompatible"
    output.line(style.green(text) if row["compatible"] else style.red(text))
    for message in row["messages"]:
        output.line(f"  {one_line(message)}")
    if not options.consumers:
        return
    for each in row["breaks"]:
        output.line(style.red(f"group {one_line(each['group'])} ({each['state']}) would break on {each['topic']}:"))
        for reason in each["reasons"]:
            output.line(f"  {one_line(reason)}")
    if not row["breaks"]:
        output.line(style.green("no group with a reported reader schema would break"))
    if row["without_report"]:
        names = ", ".join(map(one_line, row["without_report"]))
        output.line(style.yellow(f"groups without a report of their reader schema, which are not checked: {names}"))


@COMMAND.verb(
    "diff",
    _subject(),
    Argument("file", "FILE", required=False, help="a file with the newer schema; default: the latest version"),
    Option("--from N", "the older version; default: the previous one", name="older"),
    Option("--to N", "the newer version; default: latest", name="newer"),
    type_option(),
    *_shared(),
    examples="""
    ottla schema diff orders-value                 the latest two versions
    ottla schema diff orders-value --from 1 --to 3
    ottla schema diff orders-value order.avsc      the latest version and a file
    """,
    aliases=("compare",),
)
def _diff(options: Options) -> None:
    """Show the differences of two schemas: fields that are added, removed or changed."""
    client, output = open_registry(options), Output(options)
    if options.file is not None:
        if options.newer is not None:
            raise usage_error("FILE and --to exclude each other")
        after = read_schema(os.fsdecode(options.file), options.schema_type)
        before = client.get_version(options.subject, _version(options.older or "latest")).schema
    else:
        newer = client.get_version(options.subject, _version(options.newer or "latest"))
        after = newer.schema
        before = client.get_version(options.subject, _older(client, options, newer)).schema
    found = differences(before, after)
    if not found:
        output.note("The schemas have the same fields.")
    for change in found:
        output.done(_coloured(output, change), change._asdict())


def _older(client: RegistryClient, options: Options, newer: RegisteredSchema) -> int | str:
    if options.older is not None:
        return _version(options.older)
    earlier = [each for each in client.get_versions(options.subject) if each < (newer.version or 0)]
    if not earlier:
        raise Failure(f"subject {options.subject} has no version before {newer.version}")
    return max(earlier)


def _coloured(output: Output, change: Change) -> str:
    colour = {"added": output.style.green, "removed": output.style.red, "changed": output.style.yellow}[change.kind]
    return colour(one_line(change.text()))


@COMMAND.verb(
    "delete",
    _subject(),
    Option("--version N", "only this version"),
    Option("--permanent", "for good; needs an earlier deletion without this option"),
    yes_option(),
    *_shared(),
    examples="""
    ottla schema delete orders-value --version 1 --yes
    ottla schema delete orders-value --yes
    ottla schema delete orders-value --permanent --yes
    """,
    aliases=("rm", "remove"),
)
def _delete(options: Options) -> None:
    """Delete a subject or one of its versions. Ids stay known until a permanent deletion."""
    client = open_registry(options)
    what = options.subject if options.version is None else f"version {options.version} of {options.subject}"
    confirm_deletion(f"Delete {what}{' for good' if options.permanent else ''}?", yes=options.yes)
    if options.version is None:
        versions = client.delete_subject(options.subject, permanent=options.permanent)
    else:
        version = _version(options.version)
        versions = [client.delete_version(options.subject, version, permanent=options.permanent)]
    row = {"subject": options.subject, "deleted": versions, "permanent": options.permanent}
    Output(options).changed(f"{options.subject}: deleted versions {', '.join(map(str, versions))}", row)


@COMMAND.verb(
    "config",
    _subject(required=False),
    Option("--compatibility LEVEL", "set the compatibility level", type=Choice(LEVELS)),
    Option("--mode MODE", "set the mode", type=Choice(MODES)),
    Option("--reset", "remove the settings of the subject, so that the defaults apply"),
    *_shared(),
    examples="""
    ottla schema config                                      the defaults
    ottla schema config orders-value --compatibility full
    ottla schema config orders-value --mode readonly
    ottla schema config orders-value --reset
    """,
)
def _config(options: Options) -> None:
    """Show or change compatibility level and mode of a subject; without a subject, the defaults."""
    client, output = open_registry(options), Output(options)
    subject = options.subject
    if options.reset:
        _reset(client, subject)
    if options.compatibility is not None:
        client.set_config({"compatibility": options.compatibility.upper()}, subject)
    if options.mode is not None:
        client.set_mode(options.mode.upper(), subject)
    config = client.get_config(subject, default_to_global=subject is not None)
    row = {
        "subject": subject,
        "compatibility": config.get("compatibilityLevel") or config.get("compatibility"),
        "mode": client.get_mode(subject, default_to_global=subject is not None),
    }
    output.record(
        row, [Column("subject", show=lambda name: name or "(default)"), Column("compatibility"), Column("mode")]
    )


def _reset(client: RegistryClient, subject: str | None) -> None:
    for delete in (client.delete_mode, client.delete_config):  # a read-only subject refuses the second one
        try:
            delete(subject)
        except SchemaRegistryError as error:
            if error.http_status_code != 404:
                raise
