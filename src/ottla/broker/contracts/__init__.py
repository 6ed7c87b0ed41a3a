"""Contracts: the records of a topic with schema validation must have a registered schema.

A Produce request for such a topic calls `Contracts.admit`, a generator that returns the batch to append. It checks each
key or value of the batch: the schema id before it is registered under the topic's subject, and with the depth `record`
the whole field is valid in that schema. The generator waits only for the schema registry, once for each schema id, and
for the dead letter topic. Topics without schema validation do not import this package.

Reading order: `rules` (which subject a field must have), `schemas` (known schema ids), `source` (asks the registry),
`checks` (one class for each type of schema), `violations` (the invalid records of a batch), `dead_letters` (where these
go), `contracts` (reject, warn or divert). `ottla.records.contract` has the settings of a topic.
"""
