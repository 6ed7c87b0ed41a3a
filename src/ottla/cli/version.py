"""Show the versions of Ottla, Python and the libraries that Ottla uses."""

import platform
from importlib import metadata

from ottla import __version__
from ottla.cli.commands import Command, Options
from ottla.launch.console import NOT_COMPILED
from ottla.records.kernels import COMPILED

KAFKA = "4.3"


def run(options: Options) -> int:  # noqa: ARG001 - every command receives its options
    """Print one version per line."""
    print(f"ottla {__version__} (protocol and settings of Apache Kafka {KAFKA})")
    print(f"python {platform.python_version()} on {platform.system()} {platform.machine()}")
    for name in ("uvloop", "crc32c", "cramjam", "lz4"):
        try:
            print(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            print(f"{name} is not installed")
    print("kernels are compiled" if COMPILED else f"kernels are {NOT_COMPILED}")
    return 0


COMMAND = Command(run, (), __doc__)
