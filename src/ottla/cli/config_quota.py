"""Quotas of users, client ids and addresses in `ottla config`: settings of KIND user, client, ip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.cli.commands import Options
from ottla.cli.connect import connect
from ottla.cli.output import Column, Output
from ottla.clients import admin as api
from ottla.common.failure import Failure
from ottla.tools import values
from ottla.tools.admin.quotas import check_names, limit_of

KINDS = ("user", "client", "ip")


def kind_of(word: str) -> str | None:
    """Return the kind in the singular; None if it has no quotas."""
    single = word.lower().removesuffix("s")
    return single if single in KINDS else None


def show(options: Options, kind: str) -> None:
    """Run `config list` or `config get` for quotas."""
    output = Output(options)
    wanted = list(getattr(options, "settings", ()))
    check_names(wanted)
    quotas = connect(options).describe_client_quotas(_entity(kind, options.name, default=api.QuotaName.ANY))
    rows = [
        {"kind": kind, "name": _name(entity), "setting": name, "value": value}
        for entity, limits in quotas.items()
        for name, value in sorted(limits.items())
        if not wanted or name in wanted
    ]
    if wanted and not rows:
        raise Failure(f"{kind} {options.name} has no quota {', '.join(wanted)}")
    if len(wanted) == 1 and len(rows) == 1:
        output.done(number_text(rows[0]["value"]), rows[0])
    else:
        text = Column("value", cell=lambda row: values.explained(row["setting"], number_text(row["value"])))
        output.table([Column("name", narrow=True), Column("setting"), text], rows, empty="No quota matches.")


def change(options: Options, kind: str, changes: Mapping[str, object]) -> None:
    """Run `config set` or `config unset` for quotas: None removes a quota."""
    output = Output(options)
    check_names(changes)
    limits = {name: None if value is None else limit_of(name, str(value)) for name, value in changes.items()}
    connect(options).alter_client_quotas({_entity(kind, options.name): limits}, validate_only=options.dry_run)
    for name, limit in limits.items():
        row = {"kind": kind, "name": options.name, "setting": name, "value": limit, "changed": not options.dry_run}
        new = "not limited" if limit is None else values.explained(name, number_text(limit))
        text = f"{options.name}: {name} {'would be' if options.dry_run else 'is'} {new}"
        output.changed(text, row, made=not options.dry_run)


def _entity(kind: str, name: str | None, *, default: api.QuotaName | None = None) -> api.QuotaEntity:
    """Return the entity with this name; without a name, `default` or the default entity."""
    value = api.QuotaName.DEFAULT if name == "default" else name
    if value is None:
        value = default or api.QuotaName.DEFAULT
    return api.QuotaEntity(**{"client_id" if kind == "client" else kind: value})


def _name(entity: api.QuotaEntity) -> str:
    parts = [entity.user, entity.client_id, entity.ip]
    return " with client ".join(str(getattr(part, "value", part)) for part in parts if part is not None)


def number_text(value: Any) -> str:
    """Return a limit without a fraction that is zero."""
    return str(int(value)) if float(value).is_integer() else str(value)
