"""Modules that few clients need: imported at their first use.

`arrow` and `columns` need pyarrow, which is optional and takes 100 ms to import. `tls` and `sasl` import `ssl` (10 ms).
`setting_owners` knows the settings of all clients, topics and groups, for errors about unknown settings.
"""

from typing import TYPE_CHECKING

from ottla.common.lazy import LazyModule

if TYPE_CHECKING:
    from ottla.clients import sasl, setting_owners, tls
    from ottla.clients.consumer import arrow
    from ottla.clients.producer import columns
else:
    arrow = LazyModule("ottla.clients.consumer.arrow")
    columns = LazyModule("ottla.clients.producer.columns")
    sasl = LazyModule("ottla.clients.sasl")
    setting_owners = LazyModule("ottla.clients.setting_owners")
    tls = LazyModule("ottla.clients.tls")

__all__ = ["arrow", "columns", "sasl", "setting_owners", "tls"]
