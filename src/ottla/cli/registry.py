"""Run the schema registry: Confluent's API on a topic of the cluster."""

from __future__ import annotations

from ottla.cli.commands import Group, Option, Options, section
from ottla.cli.connect import cluster_options, connection_settings
from ottla.cli.log_options import log_options
from ottla.common.failure import Failure

COMMAND = Group(
    __doc__,
    """
    ottla registry serve
    ottla registry serve -b broker:9092 --listen 0.0.0.0:8081 --insecure
    """,
)


@COMMAND.verb(
    "serve",
    *section(
        "Registry",
        Option(
            "--listen HOST:PORT",
            "the address for clients; default: 127.0.0.1:8081. A port alone is on 127.0.0.1, port 0 is a free one; "
            "https://HOST:PORT with ssl.keystore.location",
        ),
        Option("--config FILE", "a properties file with settings of Confluent's registry"),
        Option(
            "-X NAME=VALUE",
            "a setting of the registry, by Confluent's name; may be repeated",
            name="overrides",
            multiple=True,
        ),
        Option("--insecure", "let other machines connect without authentication"),
        Option("--access-log", "log a line for each request"),
        *log_options(),
    ),
    *cluster_options(),
    examples="""
    ottla registry serve                                    on 127.0.0.1:8081
    ottla registry serve -b broker:9092 --listen 9081
    ottla registry serve --config schema-registry.properties
    ottla registry serve -X schema.compatibility.level=FULL
    ottla registry serve -X kafkastore.topic=_schemas -X mode.mutability=false
    """,
)
def _serve(options: Options) -> int:
    """Run a node of the registry in the foreground. Ctrl-C or SIGTERM stops it cleanly, a second one at once.

    Its first line on standard output is `registry=URL`, once schemas can be read and registered. Nodes with one group
    (schema.registry.group.id) elect a primary, which writes; any node accepts any request.
    """
    try:
        from ottla.launch import registry  # noqa: PLC0415 - needs optional packages
    except ImportError as error:
        advice = "`pip install 'ottla[registry]'` installs it."
        raise Failure(f"the registry needs the package {error.name}, which is not installed", advice) from error
    return registry.run(options, connection_settings(options))
