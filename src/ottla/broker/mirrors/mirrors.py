"""The mirrors of one node: one `Mirror` for each mirror in the metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker import late
from ottla.config import resolve_mirror
from ottla.metadata.image import MIRROR
from ottla.metadata.mirrors import RATE_SETTING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.broker.mirrors.mirror import Mirror, MirrorNode
    from ottla.metadata.image import MetadataImage


class Mirrors:
    """Follows the metadata from `start` on. A node without mirrors loads no code for them."""

    def __init__(self) -> None:
        self._node: MirrorNode | None = None
        self._running: dict[str, tuple[Mapping[str, str], Mirror]] = {}

    def start(self, node: MirrorNode) -> None:
        """Run the mirrors of the metadata."""
        self._node = node
        self.publish(None, node.metadata.image)

    def publish(self, old: MetadataImage | None, new: MetadataImage) -> None:
        """Follow a new image: mirrors that were created, changed and deleted, and leaders of their topics."""
        if self._node is None:
            return
        if old is None or old.configs is not new.configs:
            self._follow(self._node, {name: each for (kind, name), each in new.configs.items() if kind == MIRROR})
        for _, mirror in self._running.values():
            mirror.publish(old, new)

    def _follow(self, node: MirrorNode, wanted: Mapping[str, Mapping[str, str]]) -> None:
        closed: dict[str, Mirror] = {}
        for name, (settings, mirror) in list(self._running.items()):
            after = wanted.get(name)
            if after and without_rate(after) == without_rate(settings):
                # A restart would forget how many records the mirror has dropped.
                mirror.throttle(int(str(resolve_mirror(after)[RATE_SETTING].value)))
                self._running[name] = after, mirror
            elif after != settings:
                closed[name] = self._running.pop(name)[1]
                closed[name].close()
        for name, settings in wanted.items():
            if name not in self._running:
                values = {key: entry.value for key, entry in resolve_mirror(settings).items()}
                self._running[name] = settings, late.Mirror(node, name, values)
                if name in closed:
                    self._running[name][1].replaces(closed[name])

    def status(self, name: str) -> dict[str, object]:
        """The state of a mirror on this node; see `Mirror.status`."""
        running = self._running.get(name)
        return {"topics": {}, "partitions": []} if running is None else running[1].status()

    def running(self) -> dict[str, Mirror]:
        """The mirrors of this node by name."""
        return {name: mirror for name, (_, mirror) in self._running.items()}

    def close(self) -> None:
        """Stop all mirrors."""
        self._node = None
        for _, mirror in self._running.values():
            mirror.close()
        self._running.clear()


def without_rate(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of a mirror except its rate, which changes without a restart."""
    return {name: text for name, text in settings.items() if name != RATE_SETTING}
