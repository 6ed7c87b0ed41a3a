"""List, add and remove access control lists: who may do what (KIP-11, KIP-290).

RESOURCE is topic:NAME, group:NAME, transactional-id:NAME, user:Type:name or cluster. topic:* is every topic, and
topic:orders-* every topic whose name begins with orders-.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.cli.commands import Argument, Group, Option, Options, section, usage_error, yes_option
from ottla.cli.connect import connect, connection_options
from ottla.cli.names import confirm_deletion
from ottla.cli.output import Column, Output, output_options
from ottla.clients import admin as api
from ottla.common.failure import Failure
from ottla.tools.admin import acls
from ottla.tools.admin.outcomes import outcomes

COMMAND = Group(
    __doc__,
    """
    ottla security acl add ann topic:orders --operation read
    ottla security acl list
    ottla security acl remove ann --yes
    """,
    metavar="VERB",
)
_COLUMNS = [
    Column("principal", narrow=True),
    Column("permission", colour=lambda value: "red" if value == "deny" else None),
    Column("operation"),
    Column("resource", narrow=True),
    Column("host"),
]


def rule_options() -> list[Option]:
    return list(
        section(
            "Rules",
            Option("--operation OPERATION,..", "read, write, create, delete, describe, alter, ... or all"),
            Option("--producer", "what a producer needs: write, describe and create topics, write transactional ids"),
            Option("--consumer", "what a consumer needs: read and describe topics, read groups"),
            Option("--host ADDRESS", "only for clients at this address", default="*"),
            Option("--deny", "deny instead of allow; a rule that denies wins over all that allow"),
        )
    )


@COMMAND.verb(
    "list",
    Argument("user", "USER", required=False, help="only rules for this user: a name, or Type:name"),
    Option("--resource RESOURCE", "only rules that apply to this resource, also by prefixes and *"),
    *output_options(),
    *connection_options(),
    examples="""
    ottla security acl list
    ottla security acl list ann
    ottla security acl list --resource topic:orders
    """,
    aliases=("ls",),
)
def _list(options: Options) -> None:
    """List rules."""
    chosen = api.AclFilter(principal=parsed(acls.principal_of, options.user) if options.user else None)
    rules = connect(options).describe_acls(_of_resource(chosen, options.resource))
    Output(options).table(
        _COLUMNS, [acls.row_of(rule) for rule in sorted(rules, key=_order)], empty="There are no rules."
    )


@COMMAND.verb(
    "add",
    Argument("user", "USER", help="a name, Type:name, or * for everyone"),
    Argument("resources", "RESOURCE", nargs=-1, required=True, help="what the rules are for"),
    *rule_options(),
    *output_options(),
    *connection_options(),
    examples="""
    ottla security acl add ann topic:orders --operation read,write
    ottla security acl add app1 'topic:app1-*' --producer
    ottla security acl add app2 'topic:app1-*' group:app2 --consumer
    ottla security acl add '*' topic:secrets --operation all --deny
    """,
    aliases=("create",),
)
def _add(options: Options) -> None:
    """Add rules. A rule that exists already stays as it is."""
    rules = list(_rules(options))
    admin = connect(options)
    _, errors = outcomes(admin.create_acls, rules)
    output = Output(options)
    for rule in rules:
        if rule not in errors:
            output.changed(f"{rule_text(rule)}: added", acls.row_of(rule) | {"added": True})
    _fail_on(errors)


@COMMAND.verb(
    "remove",
    Argument("user", "USER", required=False, help="only rules for this user"),
    Option("--resource RESOURCE", "only rules for exactly this resource; topic:orders-* is the rule with the prefix"),
    Option("--operation OPERATION", "only rules for this operation"),
    yes_option(),
    *output_options(),
    *connection_options(),
    examples="""
    ottla security acl remove ann --yes
    ottla security acl remove --resource topic:secrets --yes
    """,
    aliases=("rm", "delete"),
)
def _remove(options: Options) -> None:
    """Remove the rules for a user, for a resource, or for both."""
    if not (options.user or options.resource):
        raise usage_error("name a USER or a --resource; all rules are not removed at once")
    chosen = api.AclFilter(principal=parsed(acls.principal_of, options.user) if options.user else None)
    resource = parsed(acls.resource_of, options.resource) if options.resource else None
    admin = connect(options)
    rules = [
        rule
        for rule in admin.describe_acls(chosen)
        if resource in (None, rule.resource)
        and (not options.operation or rule.operation in parsed(acls.operations_of, options.operation, rule.resource))
    ]
    if not rules:
        raise Failure("no rule is selected", "`ottla security acl list` shows the rules.")
    confirm_deletion(
        f"Remove {len(rules)} rules?" if len(rules) > 1 else f"Remove {rule_text(rules[0])}?", yes=options.yes
    )
    _, errors = outcomes(admin.delete_acls, rules)
    output = Output(options)
    for rule in sorted(rules, key=_order):
        if api.AclFilter.exactly(rule) not in errors:
            output.changed(f"{rule_text(rule)}: removed", acls.row_of(rule) | {"removed": True})
    _fail_on(errors)


def parsed(parse: Callable[..., Any], *arguments: object) -> Any:
    """Parse a word; raises a usage error."""
    try:
        return parse(*arguments)
    except ValueError as error:
        raise usage_error(str(error)) from error


def _rules(options: Options) -> Iterable[api.Acl]:
    kinds = [bool(options.operation), options.producer, options.consumer]
    if sum(kinds) != 1:
        raise usage_error("one of --operation, --producer and --consumer must say what is allowed")
    if options.deny and not options.operation:
        raise usage_error("--deny needs --operation")
    principal = parsed(acls.principal_of, options.user)
    permission = api.AclPermission.DENY if options.deny else api.AclPermission.ALLOW
    resources = [parsed(acls.resource_of, text) for text in options.resources]
    missing = acls.missing_for_consumer(resources) if options.consumer else None
    if missing:
        raise usage_error(f"a consumer also needs a {missing}: add {missing}:NAME")
    for resource in resources:
        if options.operation:
            operations = parsed(acls.operations_of, options.operation, resource)
        else:
            operations = parsed(acls.producer_operations if options.producer else acls.consumer_operations, resource)
        for operation in operations:
            yield api.Acl(resource, principal, operation, permission, options.host)


def _of_resource(chosen: api.AclFilter, text: str | None) -> api.AclFilter:
    if not text:
        return chosen
    resource = parsed(acls.resource_of, text)
    is_prefix = resource.pattern is api.PatternType.PREFIXED
    pattern = api.PatternType.PREFIXED if is_prefix else api.PatternType.MATCH
    return api.AclFilter(resource.type, resource.name, pattern, chosen.principal)


def _order(rule: api.Acl) -> tuple[str, str, int, str]:
    return rule.principal, acls.resource_text(rule.resource), rule.operation, rule.host


def rule_text(rule: api.Acl) -> str:
    """A rule as a line."""
    row = acls.row_of(rule)
    host = "" if rule.host == "*" else f" from {rule.host}"
    return f"{row['permission']} {row['principal']} {row['operation']} on {row['resource']}{host}"


def _fail_on(errors: Mapping[Any, Exception]) -> None:
    if errors:
        raise Failure("; ".join(sorted({str(error) for error in errors.values()})))
