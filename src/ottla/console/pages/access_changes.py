"""Changes of access: rules, SCRAM users and quotas are added, changed and removed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.clients.admin import Acl, AclPermission, QuotaEntity, QuotaName, ScramDeletion, ScramUpsertion
from ottla.console.calls import Call, Done, Problem
from ottla.console.view import Field, Form, Page, confirmation, url
from ottla.tools.admin import acls, quotas

_CRUMB: Final = ("Access", "/access")
_MECHANISMS: Final = (("SCRAM-SHA-512", "SCRAM-SHA-512"), ("SCRAM-SHA-256", "SCRAM-SHA-256"))
_LONGEST: Final = 1_000


def add_rules(call: Call) -> Page | Done:
    """Add rules for a user and a resource."""
    call.check_may_change()
    if not call.form:
        fields = [
            Field("user", "User", hint="a name, Type:name, or * for everyone", required=True),
            Field("resource", "Resource", hint="topic:orders, topic:orders-*, group:billing, cluster", required=True),
            Field("operations", "Operations", hint="read,write or all; or: producer, consumer", required=True),
            Field("host", "Only from this address", "*"),
            Field("deny", "Deny instead of allow. A rule that denies wins over all that allow.", type="checkbox"),
        ]
        command = call.command("security", "acl", "add", "USER", "RESOURCE", "--operation", "read")
        return _page("Add rules", Form(url("access", "add"), "Add", fields), command)
    rules = _rules(call.form)
    call.admin.create_acls(rules)
    return Done("/access", "rules-added", {"added": [acls.row_of(rule) for rule in rules]})


def _rules(form: Mapping[str, str]) -> list[Acl]:
    """Return the rules of a form. Raises Problem."""
    permission = AclPermission.DENY if form.get("deny") else AclPermission.ALLOW
    words = form.get("operations", "").strip()
    try:
        principal = acls.principal_of(form.get("user", "").strip())
        resource = acls.resource_of(form.get("resource", "").strip())
        if words == "producer":
            operations = acls.producer_operations(resource)
        elif words == "consumer":
            operations = acls.consumer_operations(resource)
        else:
            operations = acls.operations_of(words, resource)
    except ValueError as error:
        raise Problem(400, str(error)) from None
    if permission is AclPermission.DENY and words in ("producer", "consumer"):
        raise Problem(400, f"A rule that denies needs operations, not {words}")
    host = form.get("host", "").strip() or "*"
    return [Acl(resource, principal, operation, permission, host) for operation in operations]


def remove_rule(call: Call) -> Page | Done:
    """Remove the rule that the words of the query name, after a question."""
    call.check_may_change()
    rule = next((each for each in call.admin.describe_acls() if acls.row_of(each).items() <= call.query.items()), None)
    if rule is None:
        raise Problem(404, "There is no such rule", "Another user may have removed it.")
    data = acls.row_of(rule)
    if call.form.get("confirm"):
        call.admin.delete_acls([rule])
        return Done("/access", "rule-removed", {"removed": data})
    text = f"{data['permission']} {data['principal']} {data['operation']} on {data['resource']} from {data['host']}"
    form = Form(
        url("access", "remove", **data),
        "Remove the rule",
        [Field("confirm", "", "yes", type="hidden")],
        note=f"{text}. The brokers apply it at once.",
        tone="danger",
    )
    words = ["--resource", data["resource"], "--operation", data["operation"]]
    return _page("Remove a rule?", form, call.command("security", "acl", "remove", data["principal"], *words))


def set_user(call: Call) -> Page | Done:
    """Add a user, or change its password."""
    call.check_may_change()
    if not call.form:
        fields = [
            Field("user", "User", call.query.get("user", ""), required=True),
            Field("password", "Password", type="password", required=True),
            Field("mechanism", "Mechanism", type="select", options=_MECHANISMS),
        ]
        note = "A user that exists gets this password. Open connections stay open until they log in again."
        command = call.command("security", "user", "add", call.query.get("user") or "USER")
        return _page("Set a user", Form(url("access", "users", "set"), "Set", fields, note=note), command)
    user, password = call.form.get("user", "").strip(), call.form.get("password", "")
    mechanism = call.form.get("mechanism") or _MECHANISMS[0][0]
    if not user or not password or max(len(user), len(password)) > _LONGEST:
        raise Problem(400, "Enter a user and a password")
    if (mechanism, mechanism) not in _MECHANISMS:
        raise Problem(400, f"{mechanism[:40]!r} is not a mechanism", "It must be SCRAM-SHA-512 or SCRAM-SHA-256.")
    call.admin.alter_scram_credentials([ScramUpsertion(user, password, mechanism)])
    return Done("/access/users", "user-set", {"user": user, "mechanism": mechanism})


def remove_user(call: Call) -> Page | Done:
    """Remove a user, after its name was typed."""
    call.check_may_change()
    user = call.query.get("user", "")
    if not user:
        raise Problem(400, "No user is given", "The address is /access/users/remove?user=USER.")
    if call.form:
        call.check_confirmed(user, "remove")
        credentials = call.admin.describe_scram_credentials([user])[user]
        call.admin.alter_scram_credentials([ScramDeletion(user, each.mechanism) for each in credentials])
        return Done("/access/users", "user-removed", {"user": user})
    note = "The user cannot log in again. Its rules stay."
    form = confirmation(url("access", "users", "remove", user=user), f"Remove {user}", "user", note)
    return _page(f"Remove {user}?", form, call.command("security", "user", "remove", user))


def set_quota(call: Call) -> Page | Done:
    """Set a quota of a user, a client id or an address; without a limit, the quota is removed."""
    call.check_may_change()
    if not call.form:
        fields = [
            Field("user", "User", call.query.get("user", ""), hint="a name, or default for all without a quota"),
            Field("client", "Client id", call.query.get("client", ""), hint="an id, or default"),
            Field("ip", "Address", call.query.get("ip", ""), hint="without a user and a client id"),
            Field(
                "quota",
                "Quota",
                call.query.get("quota", ""),
                type="select",
                options=[(name, name) for name in quotas.QUOTAS],
            ),
            Field("limit", "Limit", hint="10MiB, 25; empty removes the quota"),
        ]
        command = call.command("security", "quota", "set", "--user", "USER", "producer_byte_rate=10MiB")
        return _page("Set a quota", Form(url("access", "quotas", "set"), "Set", fields), command)
    given = {name: call.form.get(name, "").strip() for name in ("user", "client", "ip", "quota", "limit")}
    if not any(given[name] for name in ("user", "client", "ip")):
        raise Problem(400, "Name a user, a client id or an address")
    if given["ip"] and (given["user"] or given["client"]):
        raise Problem(400, "An address excludes a user and a client id")
    entity = QuotaEntity(_owner(given["user"]), _owner(given["client"]), _owner(given["ip"]))
    quotas.check_names([given["quota"]])
    limit = quotas.limit_of(given["quota"], given["limit"]) if given["limit"] else None
    call.admin.alter_client_quotas({entity: {given["quota"]: limit}})
    return Done("/access/quotas", "quota-set", {**given, "limit": limit})


def _owner(name: str) -> str | QuotaName | None:
    return QuotaName.DEFAULT if name == "default" else name or None


def _page(title: str, form: Form, command: str) -> Page:
    return Page(title, {"title": title}, [form], command=command, crumbs=[_CRUMB], section="access")
