"""Names whose modules take long to import.

`completion` is needed only when a shell completes a word, and imports the commands. `failures` explains errors of
clients, and `foreign_words` unknown options and commands. `root` has the commands; `ottla up` starts without it, and
other commands start without the broker (`serve`). `Files` prints the files of logs (180 ms). `run_file` and its
siblings need pyspark; `lookup` reads tables, `observing` the statuses of pipelines, with a consumer; `resetting`
changes where they start.
"""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
