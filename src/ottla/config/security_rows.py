"""Settings of a broker that concern security, in the form of `broker_rows.py`. None of it is served yet."""

ROWS = """\
authorizer.class.name string "" - low read-only refused
    Java class that decides who may do what; empty means that everyone may do everything.
connection.failed.authentication.delay.ms int 100 0.. low read-only reported
    Pause before a connection that failed to authenticate is closed.
connections.max.reauth.ms long 0 - medium read-only reported
    After how long a SASL client must authenticate again.
delegation.token.expiry.check.interval.ms long 3600000 1.. low read-only reported
    How often expired delegation tokens are looked for.
delegation.token.expiry.time.ms long 86400000 1.. medium read-only reported
    After how long a delegation token must have been renewed.
delegation.token.max.lifetime.ms long 604800000 1.. medium read-only reported
    After how long a delegation token ends for good.
delegation.token.secret.key password null - medium read-only refused
    Key that signs delegation tokens; set, it turns them on.
principal.builder.class class org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder - medium per-broker refused
    Java class that names the user of a connection.
sasl.client.callback.handler.class class null - medium read-only reported
    SASL, which is not served: client callback handler class.
sasl.enabled.mechanisms list GSSAPI - medium per-broker reported
    SASL, which is not served: enabled mechanisms.
sasl.jaas.config password null - medium per-broker reported
    SASL, which is not served: jaas config.
sasl.kerberos.kinit.cmd string /usr/bin/kinit - medium per-broker reported
    SASL, which is not served: kerberos kinit cmd.
sasl.kerberos.min.time.before.relogin long 60000 - medium per-broker reported
    SASL, which is not served: kerberos min time before relogin.
sasl.kerberos.principal.to.local.rules list DEFAULT - medium per-broker reported
    SASL, which is not served: kerberos principal to local rules.
sasl.kerberos.service.name string null - medium per-broker reported
    SASL, which is not served: kerberos service name.
sasl.kerberos.ticket.renew.jitter double 0.05 - medium per-broker reported
    SASL, which is not served: kerberos ticket renew jitter.
sasl.kerberos.ticket.renew.window.factor double 0.8 - medium per-broker reported
    SASL, which is not served: kerberos ticket renew window factor.
sasl.login.callback.handler.class class null - medium read-only reported
    SASL, which is not served: login callback handler class.
sasl.login.class class null - medium read-only reported
    SASL, which is not served: login class.
sasl.login.connect.timeout.ms int null - low read-only reported
    SASL, which is not served: login connect timeout ms.
sasl.login.read.timeout.ms int null - low read-only reported
    SASL, which is not served: login read timeout ms.
sasl.login.refresh.buffer.seconds short 300 - medium per-broker reported
    SASL, which is not served: login refresh buffer seconds.
sasl.login.refresh.min.period.seconds short 60 - medium per-broker reported
    SASL, which is not served: login refresh min period seconds.
sasl.login.refresh.window.factor double 0.8 - medium per-broker reported
    SASL, which is not served: login refresh window factor.
sasl.login.refresh.window.jitter double 0.05 - medium per-broker reported
    SASL, which is not served: login refresh window jitter.
sasl.login.retry.backoff.max.ms long 10000 - low read-only reported
    SASL, which is not served: login retry backoff max ms.
sasl.login.retry.backoff.ms long 100 - low read-only reported
    SASL, which is not served: login retry backoff ms.
sasl.mechanism.controller.protocol string GSSAPI - high read-only reported
    SASL, which is not served: mechanism controller protocol.
sasl.mechanism.inter.broker.protocol string GSSAPI - medium per-broker reported
    SASL, which is not served: mechanism inter broker protocol.
sasl.oauthbearer.assertion.algorithm string RS256 any-case:ES256|RS256 medium read-only reported
    SASL, which is not served: oauthbearer assertion algorithm.
sasl.oauthbearer.assertion.claim.aud string null - medium read-only reported
    SASL, which is not served: oauthbearer assertion claim aud.
sasl.oauthbearer.assertion.claim.exp.seconds int 300 0..86400 low read-only reported
    SASL, which is not served: oauthbearer assertion claim exp seconds.
sasl.oauthbearer.assertion.claim.iss string null - medium read-only reported
    SASL, which is not served: oauthbearer assertion claim iss.
sasl.oauthbearer.assertion.claim.jti.include boolean false - medium read-only reported
    SASL, which is not served: oauthbearer assertion claim jti include.
sasl.oauthbearer.assertion.claim.nbf.seconds int 60 0..3600 low read-only reported
    SASL, which is not served: oauthbearer assertion claim nbf seconds.
sasl.oauthbearer.assertion.claim.sub string null - medium read-only reported
    SASL, which is not served: oauthbearer assertion claim sub.
sasl.oauthbearer.assertion.file string null - medium read-only reported
    SASL, which is not served: oauthbearer assertion file.
sasl.oauthbearer.assertion.private.key.file string null - medium read-only reported
    SASL, which is not served: oauthbearer assertion private key file.
sasl.oauthbearer.assertion.private.key.passphrase password null - medium read-only reported
    SASL, which is not served: oauthbearer assertion private key passphrase.
sasl.oauthbearer.assertion.template.file string null - medium read-only reported
    SASL, which is not served: oauthbearer assertion template file.
sasl.oauthbearer.client.credentials.client.id string null - medium read-only reported
    SASL, which is not served: oauthbearer client credentials client id.
sasl.oauthbearer.client.credentials.client.secret password null - medium read-only reported
    SASL, which is not served: oauthbearer client credentials client secret.
sasl.oauthbearer.clock.skew.seconds int 30 - low read-only reported
    SASL, which is not served: oauthbearer clock skew seconds.
sasl.oauthbearer.expected.audience list "" - low read-only reported
    SASL, which is not served: oauthbearer expected audience.
sasl.oauthbearer.expected.issuer string null - low read-only reported
    SASL, which is not served: oauthbearer expected issuer.
sasl.oauthbearer.jwks.endpoint.refresh.ms long 3600000 - low read-only reported
    SASL, which is not served: oauthbearer jwks endpoint refresh ms.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long 10000 - low read-only reported
    SASL, which is not served: oauthbearer jwks endpoint retry backoff max ms.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long 100 - low read-only reported
    SASL, which is not served: oauthbearer jwks endpoint retry backoff ms.
sasl.oauthbearer.jwks.endpoint.url string null - medium read-only reported
    SASL, which is not served: oauthbearer jwks endpoint url.
sasl.oauthbearer.jwt.retriever.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever - medium read-only reported
    SASL, which is not served: oauthbearer jwt retriever class.
sasl.oauthbearer.jwt.validator.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator - medium read-only reported
    SASL, which is not served: oauthbearer jwt validator class.
sasl.oauthbearer.scope string null - medium read-only reported
    SASL, which is not served: oauthbearer scope.
sasl.oauthbearer.scope.claim.name string scope - low read-only reported
    SASL, which is not served: oauthbearer scope claim name.
sasl.oauthbearer.sub.claim.name string sub - low read-only reported
    SASL, which is not served: oauthbearer sub claim name.
sasl.oauthbearer.token.endpoint.url string null - medium read-only reported
    SASL, which is not served: oauthbearer token endpoint url.
sasl.server.callback.handler.class class null - medium read-only reported
    SASL, which is not served: server callback handler class.
sasl.server.max.receive.size int 524288 - medium read-only reported
    SASL, which is not served: server max receive size.
security.inter.broker.protocol string PLAINTEXT PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL medium read-only refused
    Security protocol among brokers; only PLAINTEXT is served.
security.providers string null - low read-only refused
    Java classes of security providers.
ssl.allow.dn.changes boolean false - low read-only reported
    TLS, which is not served: allow dn changes.
ssl.allow.san.changes boolean false - low read-only reported
    TLS, which is not served: allow san changes.
ssl.cipher.suites list "" - medium per-broker reported
    TLS, which is not served: cipher suites.
ssl.client.auth string none required|requested|none medium per-broker reported
    TLS, which is not served: client auth.
ssl.enabled.protocols list TLSv1.2,TLSv1.3 - medium per-broker reported
    TLS, which is not served: enabled protocols.
ssl.endpoint.identification.algorithm string https - low per-broker reported
    TLS, which is not served: endpoint identification algorithm.
ssl.engine.factory.class class null - low per-broker reported
    TLS, which is not served: engine factory class.
ssl.key.password password null - medium per-broker reported
    TLS, which is not served: key password.
ssl.keymanager.algorithm string SunX509 - medium per-broker reported
    TLS, which is not served: keymanager algorithm.
ssl.keystore.certificate.chain password null - medium per-broker reported
    TLS, which is not served: keystore certificate chain.
ssl.keystore.key password null - medium per-broker reported
    TLS, which is not served: keystore key.
ssl.keystore.location string null - medium per-broker reported
    TLS, which is not served: keystore location.
ssl.keystore.password password null - medium per-broker reported
    TLS, which is not served: keystore password.
ssl.keystore.type string JKS - medium per-broker reported
    TLS, which is not served: keystore type.
ssl.principal.mapping.rules string DEFAULT - low read-only reported
    TLS, which is not served: principal mapping rules.
ssl.protocol string TLSv1.3 - medium per-broker reported
    TLS, which is not served: protocol.
ssl.provider string null - medium per-broker reported
    TLS, which is not served: provider.
ssl.secure.random.implementation string null - low per-broker reported
    TLS, which is not served: secure random implementation.
ssl.trustmanager.algorithm string PKIX - medium per-broker reported
    TLS, which is not served: trustmanager algorithm.
ssl.truststore.certificates password null - medium per-broker reported
    TLS, which is not served: truststore certificates.
ssl.truststore.location string null - medium per-broker reported
    TLS, which is not served: truststore location.
ssl.truststore.password password null - medium per-broker reported
    TLS, which is not served: truststore password.
ssl.truststore.type string JKS - medium per-broker reported
    TLS, which is not served: truststore type.
"""  # noqa: E501
