"""Ottla: Apache Kafka's little sister. See docs/ARCHITECTURE.md for the packages."""

import os

__version__ = "0.1.0"

if "OTTLA_KERNELS" in os.environ:
    from ottla.common import kernels

    kernels.choose(os.environ["OTTLA_KERNELS"])
