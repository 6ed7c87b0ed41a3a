"""Authentication and authorization: SASL exchanges as bytes in, bytes out, and decisions by access control lists.

Read `mechanism` (the interface of an exchange), then `plain`, `scram`, `oauthbearer`, and `jaas` (`sasl.jaas.config`);
for authorization `acl` (values), then `authorizer`. The package has no I/O, clock or random source: nonces, salts and
times are arguments. It does not log, and no error contains a secret.
"""
