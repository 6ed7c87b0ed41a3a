from ottla.clients.producer.asynchronous import AsyncProducer as AsyncProducer
from ottla.clients.producer.delivery import AsyncDelivery as AsyncDelivery
from ottla.clients.producer.producer import Delivery as Delivery
from ottla.clients.producer.producer import Producer as Producer
from ottla.clients.producer.record_metadata import AppendedRange as AppendedRange
from ottla.clients.producer.record_metadata import RecordMetadata as RecordMetadata
