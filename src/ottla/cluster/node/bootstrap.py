"""The address that a node announces when it is ready."""

from __future__ import annotations

from ottla.common.values import value


@value
class Bootstrap:
    """The address that clients connect to first; the controller's if the node serves no clients."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
