from ottla import config as config
from ottla.config.broker import suggest as suggest
from ottla.testing import cluster as cluster
from ottla.testing import process as process
from ottla.testing import running as running
from ottla.testing import secured as secured
from ottla.testing import unclosed as unclosed
from ottla.testing import view as view
