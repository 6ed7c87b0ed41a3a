"""Create the certificates and settings of a secured cluster, and manage its users and their rights (docs/security.md).

`init` writes files and needs no broker. The other verbs change a running cluster.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from ottla.cli import security_acl, security_check, security_quota, security_token, security_user
from ottla.cli.commands import Argument, Group, Option, Options, require_positive
from ottla.common.failure import Failure
from ottla.tools import secured_files

COMMAND = Group(
    __doc__,
    """
    ottla security init                      a node on this machine
    ottla security user add dan --generate   prints the new password
    ottla security acl add dan topic:orders --operation read
    ottla security check dan read topic:orders
    """,
)
COMMAND.add_command(security_quota.COMMAND, "quota")
COMMAND.add_command(security_user.COMMAND, "user")
COMMAND.add_command(security_token.COMMAND, "token")
COMMAND.add_command(security_acl.COMMAND, "acl")
COMMAND.add_command(security_check.COMMAND, "check")


@COMMAND.verb(
    "init",
    Argument("directory", "DIR", required=False, help="where the files are written; default: ./security"),
    Option(
        "--node HOST,..",
        "host name and further names or addresses of a node; once for each node; default: one node on localhost",
        name="nodes",
        multiple=True,
    ),
    Option("--client NAME", "a client with a certificate; may be repeated", name="clients", multiple=True),
    Option("--admin NAME", "the user that may do everything; default: admin", default="admin"),
    Option("--path DIR", "the directory of a node's files on its machine; default: where they are written"),
    Option("--data DIR", "the data directory of a node; default: `data` next to its files"),
    Option("--days N", "how long certificates are valid", type=int, default=secured_files.DEFAULT_DAYS),
    Option("--renew", "issue new keys and certificates for nodes and clients; nothing else changes"),
    examples="""
    ottla security init --node kafka1,10.0.0.1 --path /etc/ottla
    ottla security init ./cluster --node kafka1 --node kafka2 --node kafka3
    ottla security init ./cluster --node kafka1 --client spark
    ottla security init ./cluster --node kafka1 --renew
    """,
    summary="create certificates, settings of nodes, and an administrator",
)
def _init(options: Options) -> None:
    """Create a certificate authority, and for each node a certificate and a server.properties. Clients log in over
    TLS with a password; nodes identify each other by their certificates. The administrator's password is random, in
    DIR/admin.properties. Files that exist stay as they are, so that the command can add nodes and clients.

    Copy DIR/node-1 to the first machine, and so on. DIR/ca.key and DIR/admin.properties are for you alone.
    """
    require_positive(options, "--days")
    directory = Path(os.fsdecode(options.directory or "security"))
    nodes = [tuple(filter(None, map(str.strip, each.split(",")))) for each in options.nodes] or [
        secured_files.LOCAL_HOSTS
    ]
    if not all(nodes):
        raise Failure("--node is empty; it must name the host of a node", exit_code=2)
    plan = secured_files.ClusterPlan(
        nodes=nodes,
        clients=options.clients,
        admin=options.admin,
        target=os.fsdecode(options.path or ""),
        data=os.fsdecode(options.data or ""),
        days=options.days,
    )
    files = secured_files.SecuredFiles(directory)
    try:
        files.create(plan, renew=options.renew)
    except OSError as error:
        raise Failure(f"{error.filename or directory} cannot be written: {error.strerror}") from error
    for path in files.written:
        print(f"{os.path.relpath(path)}: written")
    if not files.written:
        print(f"{directory}: every file exists already; --renew issues new certificates")
    for line in _next_steps(files, plan):
        print(line)


def _next_steps(files: secured_files.SecuredFiles, plan: secured_files.ClusterPlan) -> list[str]:
    admin = shlex.quote(os.path.relpath(files.admin_properties))
    if len(plan.nodes) == 1:
        settings = plan.target or os.path.relpath(files.node(1))
        start = [f"  start it:    ottla up --config {shlex.quote(settings + '/' + secured_files.SERVER_PROPERTIES)}"]
    else:
        home = shlex.quote((plan.target or str(files.directory) + "/node-N") + "/" + secured_files.SERVER_PROPERTIES)
        start = [
            f"  copy:        {os.path.relpath(files.directory)}/node-N to machine N",
            f"  on each:     ottla format --config {home} --cluster-id {files.cluster_id()}",
            f"               ottla up --config {home}",
        ]
    return [
        "",
        *start,
        f"  look:        ottla cluster --command-config {admin}",
        f"  add a user:  ottla security user add ann --command-config {admin}",
    ]
