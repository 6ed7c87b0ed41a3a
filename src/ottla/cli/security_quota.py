"""List, set and remove the quotas of users, client ids and IP addresses (KIP-13, 124, 546, 599, 612).

A quota limits each node's traffic with a client. The name `default` stands for all that have no quota of their own. A
user and a client id together limit this client of this user.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.cli.commands import Argument, Group, Option, Options, dry_run_option, usage_error, yes_option
from ottla.cli.config_quota import number_text
from ottla.cli.connect import connect, connection_options
from ottla.cli.names import confirm_deletion
from ottla.cli.output import Column, Output, output_options
from ottla.clients import admin as api
from ottla.common.failure import Failure
from ottla.tools import values
from ottla.tools.admin.quotas import check_names, limit_of

COMMAND = Group(
    __doc__,
    """
    ottla security quota set --user ann producer_byte_rate=10MiB
    ottla security quota list
    ottla security quota remove --user ann
    """,
    metavar="VERB",
)


def _entity_options() -> list[Option]:
    return [
        Option("--user USER", "the name of a user, or default"),
        Option("--client ID", "a client id, or default"),
        Option("--ip ADDRESS", "an IP address, or default; excludes the others"),
    ]


@COMMAND.verb(
    "list",
    *_entity_options(),
    *output_options(),
    *connection_options(),
    examples="""
    ottla security quota list
    ottla security quota list --user ann     also with client ids
    ottla security quota list --ip default
    """,
    summary="list quotas, all or for the named entities",
    aliases=("ls",),
)
def _list(options: Options) -> None:
    """List quotas: all, or the quotas of entities with the given names."""
    quotas = connect(options).describe_client_quotas(_entity(options))
    rows = [
        {**_names(entity), "quota": name, "value": value}
        for entity, limits in quotas.items()
        for name, value in sorted(limits.items())
    ]
    rows.sort(key=lambda row: [str(row[name] or "") for name in ("user", "client", "ip", "quota")])
    columns = [
        *map(_name_column, ("user", "client", "ip")),
        Column("quota"),
        Column("value", cell=lambda row: values.explained(row["quota"], number_text(row["value"]))),
    ]
    Output(options).table(columns, rows, empty="No quota matches.")


@COMMAND.verb(
    "set",
    *_entity_options(),
    Argument("changes", "QUOTA=VALUE", nargs=-1, required=True, help="quotas with values, such as 10MiB or 25"),
    dry_run_option(),
    *output_options(),
    *connection_options(),
    examples="""
    ottla security quota set --user ann producer_byte_rate=10MiB
    ottla security quota set --user ann --client importer producer_byte_rate=1MiB
    ottla security quota set --user default request_percentage=25
    ottla security quota set --ip default connection_creation_rate=10
    """,
)
def _set(options: Options) -> None:
    """Set quotas of a user, a client id, both together, or an IP address. They hold at once."""
    _change(options, dict(values.assignments(options.changes)))


@COMMAND.verb(
    "remove",
    *_entity_options(),
    Argument("quotas", "QUOTA", nargs=-1, help="names of quotas; default: all of the entity"),
    yes_option(),
    dry_run_option(),
    *output_options(),
    *connection_options(),
    examples="""
    ottla security quota remove --user ann producer_byte_rate
    ottla security quota remove --user ann --client importer --yes
    """,
    aliases=("rm", "delete"),
)
def _remove(options: Options) -> None:
    """Remove quotas of an entity: the named ones, or all."""
    entity = _one_entity(options)
    names = options.quotas or connect(options).describe_client_quotas(entity, strict=True).get(entity, {})
    if not names:
        raise Failure(f"{_text(entity)} has no quotas", "`ottla security quota list` shows the quotas.")
    if not options.quotas and not options.dry_run:
        confirm_deletion(f"Remove the quotas {', '.join(sorted(names))} of {_text(entity)}?", yes=options.yes)
    _change(options, dict.fromkeys(names))


def _change(options: Options, changes: Mapping[str, object]) -> None:
    entity, output = _one_entity(options), Output(options)
    check_names(changes)
    limits = {name: None if value is None else limit_of(name, str(value)) for name, value in changes.items()}
    connect(options).alter_client_quotas({entity: limits}, validate_only=options.dry_run)
    for name, limit in limits.items():
        row = {**_names(entity), "quota": name, "value": limit, "changed": not options.dry_run}
        new = "not limited" if limit is None else values.explained(name, number_text(limit))
        text = f"{_text(entity)}: {name} {'would be' if options.dry_run else 'is'} {new}"
        output.changed(text, row, made=not options.dry_run)


def _name_column(kind: str) -> Column:
    return Column(kind, narrow=True, cell=lambda row: row[kind] or "")


def _one_entity(options: Options) -> api.QuotaEntity:
    entity = _entity(options)
    if entity == api.QuotaEntity():
        raise usage_error("name the entity with --user, --client or --ip")
    return entity


def _entity(options: Options) -> api.QuotaEntity:
    if options.ip is not None and (options.user is not None or options.client is not None):
        raise usage_error("--ip excludes --user and --client")
    return api.QuotaEntity(user=_name(options.user), client_id=_name(options.client), ip=_name(options.ip))


def _name(text: str | None) -> str | api.QuotaName | None:
    return api.QuotaName.DEFAULT if text == "default" else text


def _names(entity: api.QuotaEntity) -> dict[str, Any]:
    parts = {"user": entity.user, "client": entity.client_id, "ip": entity.ip}
    return {kind: getattr(name, "value", name) for kind, name in parts.items()}


def _text(entity: api.QuotaEntity) -> str:
    parts: Iterable[tuple[str, str | None]] = _names(entity).items()
    return " with ".join(f"{kind} {name}" for kind, name in parts if name is not None)
