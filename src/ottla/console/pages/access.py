"""Access: ACLs, SCRAM users, quotas."""

from __future__ import annotations

from ottla.clients import admin as api
from ottla.clients.admin import AclPermission, QuotaName
from ottla.console.calls import Call
from ottla.console.view import Cell, Column, Link, Page, Table, text, url
from ottla.tools.admin.acls import resource_text, row_of, word


def _tabs(current: str) -> list[Link]:
    names = (("acls", "ACLs", "/access"), ("users", "Users", "/access/users"), ("quotas", "Quotas", "/access/quotas"))
    return [Link(name, href, current=current == key) for key, name, href in names]


def _may(call: Call, link: tuple[str, str]) -> list[tuple[str, str]]:
    """Return the link of a change where changes are allowed."""
    return [link] if call.may_change else []


def _links(call: Call, link: tuple[str, str]) -> list[Cell]:
    return [Cell(*each) for each in _may(call, link)]


def _no_name(call: Call) -> list[Column]:
    """Return the column of a link for each row."""
    return [Column("")] if call.may_change else []


def acls(call: Call) -> Page:
    """Show the ACLs."""
    rules = sorted(call.admin.describe_acls(), key=lambda rule: (resource_text(rule.resource), rule.principal))
    rows = [
        [
            Cell(rule.principal),
            Cell(word(rule.permission), tone="critical" if rule.permission is AclPermission.DENY else "ok"),
            Cell(word(rule.operation)),
            Cell(resource_text(rule.resource)),
            Cell(rule.host),
            *_links(call, ("Remove", url("access", "remove", **row_of(rule)))),
        ]
        for rule in rules
    ]
    data = [row_of(rule) for rule in rules]
    columns = [
        Column("Principal"),
        Column("Permission"),
        Column("Operation"),
        Column("Resource"),
        Column("Host"),
        *_no_name(call),
    ]
    return Page(
        "Access",
        {"acls": data},
        [Table(columns, rows, empty="There is no rule.")],
        command=call.command("security", "acl", "list"),
        tabs=_tabs("acls"),
        actions=[Link(*link) for link in _may(call, ("Add rules", url("access", "add")))],
        section="access",
    )


def users(call: Call) -> Page:
    """Show the users with SCRAM credentials."""
    found = call.admin.describe_scram_credentials()
    rows = [
        [
            Cell(user),
            Cell(", ".join(f"{each.mechanism} ({each.iterations:,} iterations)" for each in credentials)),
            *_links(call, ("Password", url("access", "users", "set", user=user))),
            *_links(call, ("Remove", url("access", "users", "remove", user=user))),
        ]
        for user, credentials in sorted(found.items())
    ]
    data = [
        {
            "user": user,
            "credentials": [{"mechanism": each.mechanism, "iterations": each.iterations} for each in credentials],
        }
        for user, credentials in sorted(found.items())
    ]
    return Page(
        "Access",
        {"users": data},
        [Table([Column("User"), Column("Credentials"), *2 * _no_name(call)], rows, empty="There is no SCRAM user.")],
        command=call.command("security", "user", "list"),
        tabs=_tabs("users"),
        actions=[Link(*link) for link in _may(call, ("Add a user", url("access", "users", "set")))],
        section="access",
    )


def quotas(call: Call) -> Page:
    """Show the quotas."""
    found = call.admin.describe_client_quotas()
    rows = []
    data = []
    for entity, limits in found.items():
        owner = _owner(entity)
        data.append({"entity": owner, "quotas": dict(limits)})
        shown = " · ".join(f"{kind} {name}" for kind, name in owner.items())
        rows += [[text(shown), text(name), Cell(f"{limit:,.10g}")] for name, limit in sorted(limits.items())]
    return Page(
        "Access",
        {"quotas": data},
        [Table([Column("Owner"), Column("Quota"), Column("Limit", right=True)], rows, empty="There is no quota.")],
        command=call.command("security", "quota", "list"),
        tabs=_tabs("quotas"),
        actions=[Link(*link) for link in _may(call, ("Set a quota", url("access", "quotas", "set")))],
        section="access",
    )


def _owner(entity: api.QuotaEntity) -> dict[str, str]:
    names = (("user", entity.user), ("client-id", entity.client_id), ("ip", entity.ip))
    return {kind: "(default)" if isinstance(name, QuotaName) else str(name) for kind, name in names if name is not None}
