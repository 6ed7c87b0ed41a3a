from ottla.network.sasl_settings import sasl_source as sasl_source
from ottla.network.tls_settings import tls_context as tls_context
