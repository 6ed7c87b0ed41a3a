from ottla.broker import server as server
from ottla.launch import companions as companions
from ottla.launch import secured as secured
from ottla.launch import supervise as supervise
