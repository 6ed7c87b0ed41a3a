from ottla.clients import setting_owners as setting_owners
from ottla.clients.consumer import arrow as arrow
from ottla.clients.producer import columns as columns
from ottla.network import sasl_settings as sasl_settings
from ottla.network import tls_settings as tls_settings
