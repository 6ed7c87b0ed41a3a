"""One file per API. Each has `handle(broker, context, request)`, which answers with the response, with a
`Completion` of it, or with None where the protocol has no answer. Errors go into the response's fields.
"""
