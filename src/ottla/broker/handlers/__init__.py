"""One file per API. Each has `handle(broker, context, request)`, which returns the response, a `Completion` of it, or
None where the protocol has no response. Errors go into the response's fields. `broker` is a Protocol of `broker.ports`.
"""
