from ottla.broker import oauthbearer as oauthbearer
from ottla.broker.delegation_tokens import DelegationTokens as DelegationTokens
