"""SASL exchanges as bytes in, bytes out: the messages of each mechanism, for clients and for brokers.

Read `mechanism` (the interface of an exchange), then `plain`, `scram`, `oauthbearer`. The package has no I/O, clock or
random source: nonces, salts and times are arguments. It does not log, and no error contains a secret.
"""
