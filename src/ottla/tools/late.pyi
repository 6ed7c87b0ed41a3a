from ottla.clients.consumer.settings import CONSUMER_OPTIONS as CONSUMER_OPTIONS
from ottla.clients.network import Cluster as Cluster
from ottla.clients.producer.settings import PRODUCER_OPTIONS as PRODUCER_OPTIONS
from ottla.registry_client.settings import SETTINGS as SETTINGS
from ottla.registry_client.settings import is_registry_setting as is_registry_setting
