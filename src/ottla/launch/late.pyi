from ottla.broker import server as server
from ottla.launch import registry_process as registry_process
from ottla.launch import secured as secured
from ottla.launch import supervise as supervise
