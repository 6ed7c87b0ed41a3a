"""Start a broker, or a cluster on this machine. Ctrl-C or SIGTERM stops it cleanly, a second one at once.

Its first line on standard output is `bootstrap=HOST:PORT`, once clients can connect. Log lines go to standard error.

With --brokers N a whole cluster runs on this machine, each broker in a process of its own: it uses N cores, and from
three brokers on it survives the end of any one. Ports follow each other from the port of --listen. The data of node I
is in DIR/node-I; the same command starts the cluster again. Nodes on several machines: one `ottla up --config` each.
"""

from ottla.cli.broker_options import BROKER_OPTIONS
from ottla.cli.commands import Command, Option
from ottla.cli.log_options import log_options
from ottla.launch import serve
from ottla.launch.companions import CONSOLE_ADDRESS, REGISTRY_ADDRESS
from ottla.launch.settings import METRICS_ADDRESS

EXAMPLES = """
ottla up                                       on 127.0.0.1:9092
ottla up --data ./data --listen 127.0.0.1:0    on a port that is free
ottla up --listen 9095                         on another port of this machine
ottla up --listen 0.0.0.0:9092 --insecure      on every interface: no login
ottla up --listen 0.0.0.0:9092 --secure        on every interface: users
ottla up --data ./data -X num.partitions=6     any setting, by Kafka's name
ottla up --data ./cluster --brokers 3          on 127.0.0.1:9092 to 9094
ottla up --data ./safe --secure                with users and encryption
ottla up --console --registry                  with web pages and schemas
ottla up --metrics                             with metrics for Prometheus
ottla up --config server.properties            a node of a cluster, as Kafka's
"""


_PARAMETERS = [
    *BROKER_OPTIONS,
    Option(
        "--listen HOST:PORT",
        "the address for clients; default: 127.0.0.1:9092. A port alone is on 127.0.0.1, port 0 is a "
        "free one, host 0.0.0.0 is every interface",
        takes_bytes=True,
    ),
    Option(
        "--insecure",
        "let other machines connect without authentication; without this option, a listener that they can reach needs "
        "SASL or client certificates",
    ),
    Option(
        "--secure",
        "clients log in over TLS with a password, nodes identify each other by certificates; the first start creates "
        "all files. Needs ottla[security]",
    ),
    Option(
        "--registry HOST:PORT",
        f"run a schema registry, too, in a process of its own; default: {REGISTRY_ADDRESS}. Needs ottla[registry]",
        is_flag=False,
        flag_value=REGISTRY_ADDRESS,
    ),
    Option(
        "--console HOST:PORT",
        f"run a web console, too, in a process of its own; default: {CONSOLE_ADDRESS}. Needs ottla[console]",
        is_flag=False,
        flag_value=CONSOLE_ADDRESS,
    ),
    Option(
        "--metrics HOST:PORT",
        f"serve metrics for Prometheus (ottla.metrics.listener); default: {METRICS_ADDRESS}. With --brokers, each node "
        "has the next port",
        is_flag=False,
        flag_value=METRICS_ADDRESS,
    ),
    Option("--brokers N", "run a cluster of N brokers on this machine, each in its own process; default: 1"),
    *log_options(),
]


COMMAND = Command(serve.run, _PARAMETERS, __doc__, EXAMPLES)
