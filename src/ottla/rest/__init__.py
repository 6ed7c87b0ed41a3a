"""The REST proxy: Confluent's APIs v2 and v3 over Ottla's clients. Needs the extra `rest`.

Each request uses the credentials of its user at the broker: the proxy has no rights of its own. A record is
acknowledged in an answer only after the broker has acknowledged it.

Read in this order:
- `settings`: every setting, with Confluent's names where they exist.
- `errors`: the error codes of Confluent, and how a client's error becomes an answer.
- `limits`: how many requests and bytes the proxy has in memory, in total and for each user.
- `pool`: the clients of each user; logs users in at the broker, closes idle clients.
- `calls`: one HTTP request with the clients of its user: `Call`, `Proxy`, `Endpoint`.
- `schemas/`: keys and values with a schema in the registry.
- `v2/`: the resources of the API v2. `v3/`: the resources of the API v3. `events/`: server-sent events.
- `server`: joins them to one application, and runs it.
"""
