"""Names that few commands need: the settings of other clients than their own, and connections without an admin client.

Their modules take a quarter of the CPU time of a probe (`ottla health live`), which is a process each time.
"""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
