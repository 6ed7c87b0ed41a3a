"""The broker: connects the packages below it and handles requests.

Contract: a handler receives a decoded request and the ports that it needs, and returns a response, a Completion of one,
or slices of work. It converts each error to the code of the protocol.

Reading order: `dispatch` (a frame becomes a request), `ports`, `handlers/` (one file per API), `broker` (the parts of
one node), `composition` (creates them), `server` (start and stop). Below it: `ottla.partitions` (the logs of this
node), `ottla.coordination` (groups, transactions, shares), `ottla.cluster` (metadata, quorum, controller).
"""
