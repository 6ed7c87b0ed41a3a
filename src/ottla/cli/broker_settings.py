"""The settings of a broker from the command line and a file: `-X` wins over options, and options over `--config`."""

from types import SimpleNamespace

from ottla.cli.storage import default_data_directory, known_node_id
from ottla.cli.terminal import Failure
from ottla.config import BrokerConfig, ConfigError, load_properties, parse_address

# --listen replaces these settings of the file, which describe other listeners.
_LISTENER_SETTINGS = (
    "advertised.listeners",
    "controller.listener.names",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
)


LOOPBACK = "127.0.0.1"


def broker_config(options: SimpleNamespace) -> BrokerConfig:
    """Return the settings that the options ask for; raises Failure with exit code 2 if one is wrong."""
    properties = _from_file(options.config) if options.config else {}
    listen = getattr(options, "listen", None)
    if listen:
        for name in _LISTENER_SETTINGS:
            properties.pop(name, None)
        properties["listeners"] = _listener(listen)
    if options.data is not None and not options.data.strip():
        raise Failure("--data is empty; it is the directory that the data is in", exit_code=2)
    if options.data:
        properties.pop("log.dir", None)
        properties["log.dirs"] = _directory("--data", options.data)
    elif "log.dirs" not in properties and "log.dir" not in properties:
        properties["log.dirs"] = _directory("the data directory", default_data_directory())
    if options.node_id is not None:
        properties.pop("broker.id", None)
        properties["node.id"] = options.node_id
    for override in options.overrides:
        name, separator, value = override.partition("=")
        if not separator or not name.strip():
            raise Failure(f"-X {override!r} is not of the form NAME=VALUE", exit_code=2)
        properties[name.strip()] = value
    try:
        config = BrokerConfig(properties)
        if "node.id" not in properties and "broker.id" not in properties:
            node_id = known_node_id(config.metadata_log_dir)
            if node_id is not None and node_id != config.node_id:
                config = BrokerConfig({**properties, "node.id": str(node_id)})
    except ConfigError as error:
        raise Failure(str(error), exit_code=2) from error
    return config


def _directory(what: str, path: str) -> str:
    """Return the path; raises Failure for a path that the list `log.dirs` cannot contain."""
    if "," in path:
        message = f"{what}: {path!r} has a comma, which separates log directories: name several with -X log.dirs=a,b"
        raise Failure(message, exit_code=2)
    if path.strip() != path:
        raise Failure(f"{what}: {path!r} begins or ends with a blank, which a log directory cannot", exit_code=2)
    return path


def _from_file(path: str) -> dict[str, str]:
    from pathlib import Path  # 7 ms that only those who have such a file should wait

    try:
        return load_properties(Path(path))
    except OSError as error:
        raise Failure(f"the file {path} cannot be read: {error.strerror}", exit_code=2) from error
    except ValueError as error:
        raise Failure(str(error), exit_code=2) from error


def _listener(text: str) -> str:
    bare_port = text.removeprefix(":")
    try:
        # A port alone must not open the broker to the network: there is no authentication.
        host, port = (LOOPBACK, int(bare_port)) if bare_port.isdecimal() else parse_address(text)
    except ValueError as error:
        raise Failure(f"--listen: {error}", exit_code=2) from error
    if port > 65535:
        raise Failure(f"--listen: {port} is above 65535, the highest port", exit_code=2)
    return f"PLAINTEXT://{f'[{host}]' if ':' in host else host}:{port}"
