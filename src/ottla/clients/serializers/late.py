"""Names that few clients need: imported at their first use. The columns import pyarrow."""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
