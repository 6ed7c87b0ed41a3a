from ottla.clients.share.acknowledgements import AcknowledgeType as AcknowledgeType
from ottla.clients.share.asynchronous import AsyncShareConsumer as AsyncShareConsumer
from ottla.clients.share.blocking import ShareConsumer as ShareConsumer
