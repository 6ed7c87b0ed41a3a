from ottla.controller import alter_partition as alter_partition
from ottla.controller import balancing as balancing
from ottla.controller import configs as configs
from ottla.controller import directories as directories
from ottla.controller import heartbeats as heartbeats
from ottla.controller import quotas as quotas
from ottla.controller import reassignment as reassignment
from ottla.controller import topics as topics
