"""The signals that stop a worker; apart, since it needs the packages of the extra."""

from ottla.web.server import stop_signals

__all__ = ["stop_signals"]
