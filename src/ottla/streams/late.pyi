from ottla.registry_client.settings import check_setting as check_setting
from ottla.registry_client.settings import is_registry_setting as is_registry_setting
from ottla.spark import table_history as table_history
from ottla.streams import lookup as lookup
from ottla.streams import lookup_values as lookup_values
from ottla.streams import planning as planning
from ottla.streams import runtime as runtime
