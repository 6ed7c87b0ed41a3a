from ottla.clients import sasl as sasl
from ottla.clients import setting_owners as setting_owners
from ottla.clients import tls as tls
from ottla.clients.consumer import arrow as arrow
from ottla.clients.producer import columns as columns
