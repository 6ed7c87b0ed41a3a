"""Connect: sources and sinks between topics and other systems, with the REST API of Kafka Connect.

Reading order: `data` and `records` (what flows), `api` (connectors and tasks) and `functions` (connectors as
functions); `config`, `converters` and `transforms` (from bytes to data); `worker` (runs tasks), `herder` (decides what
runs), `cluster` (several workers) and `rest`; `connectors` (delivered ones) and `spark` (tasks as Spark queries).
"""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
