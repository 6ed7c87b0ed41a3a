"""Names that a worker imports at their first use.

httpx takes 0.1 s of CPU and 4 MB, with rich and trio installed 12 MB. Only a worker that sends requests to another
worker of its group needs it.
"""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
