"""Say whether a user may do something, and which rule decides."""

from __future__ import annotations

from ottla.cli.commands import Argument, Command, Option, Options, usage_error
from ottla.cli.connect import connect, connection_options
from ottla.cli.output import Output, output_options
from ottla.cli.security_acl import parsed, rule_text
from ottla.clients import admin as api
from ottla.tools.admin import acls

DENIED = 1


def run(options: Options) -> int:
    """Say whether a user may do something, and which rule decides. The exit code is 1 if it is denied.

    The rules of the cluster decide. The command does not know super.users and allow.everyone.if.no.acl.found, which are
    settings of the nodes.
    """
    principal = parsed(acls.principal_of, options.user)
    resource = parsed(acls.resource_of, options.resource)
    if resource.pattern is api.PatternType.PREFIXED or resource.name == "*":
        raise usage_error(f"{options.resource} is many resources: name one, such as topic:orders")
    operations = parsed(acls.operations_of, options.operation, resource)
    if len(operations) != 1 or operations[0] is api.AclOperation.ALL:
        raise usage_error("name one operation, such as read")
    rules = connect(options).describe_acls(api.AclFilter(resource.type, resource.name, api.PatternType.MATCH))
    allowed, rule = acls.decide(rules, principal, options.host, operations[0], resource)
    verdict = "allowed" if allowed else "denied"
    if rule is not None:
        reason = f"by the rule: {rule_text(rule)}"
    elif rules:
        reason = "no rule allows it, and the resource has rules for others"
    else:
        reason = "the resource has no rules"
    text = f"{verdict} {reason}" if rule is not None else f"{verdict}: {reason}"
    row = {"user": principal, "allowed": allowed, "rule": None if rule is None else acls.row_of(rule)}
    output = Output(options)
    output.changed(text, row, made=allowed)
    if rule is None:
        output.note("Super users of the nodes (super.users) may do everything.")
    return 0 if allowed else DENIED


COMMAND = Command(
    run,
    [
        Argument("user", "USER", help="a name, or Type:name"),
        Argument("operation", "OPERATION", help="read, write, create, delete, describe, alter, ..."),
        Argument(
            "resource", "RESOURCE", help="topic:NAME, group:NAME, transactional-id:NAME, user:Type:name or cluster"
        ),
        Option("--host ADDRESS", "the address of the client; default: one that no rule names", default=""),
        *output_options(),
        *connection_options(),
    ],
    run.__doc__,
    examples="""
    ottla security check app1 write topic:app1-orders
    ottla security check app2 read group:app2 --host 10.0.0.7
    """,
    summary="say which rule allows or denies an operation",
)
