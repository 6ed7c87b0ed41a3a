"""Modules that few clients need: imported at their first use.

`arrow` and `columns` need pyarrow, which is optional and takes 100 ms to import. `tls_settings` imports `ssl` (10 ms).
`setting_owners` knows the settings of all clients, topics and groups, for errors about unknown settings.
"""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
