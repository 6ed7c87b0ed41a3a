"""SASL as bytes in, bytes out: what each mechanism says, for clients and for brokers.

Read `mechanism` (what an exchange is), then `plain`, `scram`, `oauthbearer`. A core: no I/O, no clock, no chance of its
own; nonces, salts and times are arguments. Nothing here logs or repeats a secret in an error.
"""
