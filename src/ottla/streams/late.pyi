from ottla.spark import table_history as table_history
from ottla.streams import lookup as lookup
from ottla.streams import lookup_values as lookup_values
from ottla.streams import planning as planning
from ottla.streams import runtime as runtime
