from ottla.clients.consumer.asynchronous import AsyncConsumer as AsyncConsumer
from ottla.clients.consumer.blocking import Consumer as Consumer
from ottla.clients.consumer.record import Record as Record
from ottla.clients.consumer.record import TimestampType as TimestampType
from ottla.clients.consumer.subscription import SubscriptionPattern as SubscriptionPattern
from ottla.clients.offsets import GroupMetadata as GroupMetadata
from ottla.clients.offsets import OffsetAndMetadata as OffsetAndMetadata
