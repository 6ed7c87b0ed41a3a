"""A real broker in tests, with pytest (`plugin`) or without.

Reading order: `view` (the API for tests), `faults` and `rules` (injected faults), `interceptor` and `error_responses`
(how the broker applies them), `control` (operations on the broker), `running` and `process` (the thread or process of
the broker), `cluster` (several brokers in processes). Names are imported on first use,
since every pytest run of an environment with Ottla loads the plugin.
"""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
