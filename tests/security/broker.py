"""A broker as companies run it: TLS, mutual TLS, every SASL mechanism, and rights for each principal.

It must never give a principal of the tests a right: only the super user of the plain listener has any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.e2e.site import wait_until
from tests.kafka_broker.broker import PATIENT, Broker
from tests.security.certificates import Authority, Certificate
from tests.security.token_server import AUDIENCE, TokenServer
from tests.waiting import patience

USERS = ("joiner", "learner", "scorer", "operator")
SPARE = tuple(f"user-{number}" for number in range(28))
"""Users of SASL/PLAIN only, for things that each lack another right at the same time."""
LIMITED = "limited"
"""One more, for whoever has a quota."""
LISTENERS = {"OPEN": "SASL_PLAINTEXT"} | {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "SASL": "SASL_SSL",
    "ELSEWHERE": "SSL",
    "EXPIRED": "SSL",
}
QUOTA_WINDOW_S = 1
"""Over how many seconds brokers add up what counts against a quota, so that tests need not send much to meet one."""
OAUTH_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
OAUTH_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
SCRAM = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)


def password_of(user: str) -> str:
    """A user's password, the same with every mechanism; its words are nowhere else in the tests."""
    return f"{user}-Zebra7Quartz"


@dataclass
class Secured:
    """The broker, and what its clients need. `super_client` are the options of a client that may do anything."""

    broker: Broker
    folder: Path
    authority: Authority
    tokens: TokenServer

    @cached_property
    def admin(self) -> AdminClient:
        """An admin client of the super user."""
        return AdminClient({**self.super_client, "log_level": 0})

    @property
    def super_client(self) -> dict[str, str]:
        """Options of a client of the super user."""
        return {"bootstrap.servers": self.broker.bootstrap}

    def options(self, mechanism: str, user: str, **changes: str) -> dict[str, Any]:
        """Options of a client of `user`: TLS, MUTUAL, PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."""
        common = {"ssl.ca.location": str(self.authority.file), "log_level": "4"}
        listener = mechanism if mechanism in LISTENERS else "SASL"
        address = {"bootstrap.servers": self.broker.address(listener)}
        if mechanism in LISTENERS:
            mine = self.certificate(user) if mechanism == "MUTUAL" else None
            files = (
                {"ssl.certificate.location": str(mine.certificate), "ssl.key.location": str(mine.key)} if mine else {}
            )
            return {**address, "security.protocol": "ssl", **common, **files, **changes}
        sasl = {"security.protocol": "sasl_ssl", "sasl.mechanism": mechanism}
        if mechanism == "OAUTHBEARER":
            who = {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": self.tokens.token_url,
                "sasl.oauthbearer.client.id": user,
                "sasl.oauthbearer.client.secret": password_of(user),
            }
        else:
            who = {"sasl.username": user, "sasl.password": password_of(user)}
        return {**address, **sasl, **common, **who, **changes}

    def certificate(self, user: str) -> Certificate:
        """A certificate of a user."""
        stem = self.folder / user
        made = Certificate(stem.with_suffix(".crt"), stem.with_suffix(".key"))
        return made if made.certificate.exists() else self.authority.issue(user)

    def allow_all(self, user: str, rights: Iterable[tuple[str, str, str]]) -> None:
        """Give rights to a user, each as kind, name, operation; they count when this returns."""
        wanted = [AclBinding(*_acl(user, *right)) for right in rights]
        _all(self.admin.create_acls(wanted))
        wait_until(lambda: set(wanted) <= self._rights_of(user), f"the broker goes by the rights of {user}")

    def forbid_all(self, user: str | None = None) -> None:
        """Take all rights away, from one user or from everybody; they are gone when this returns."""
        _all(self.admin.delete_acls([_any_right(user)]))
        wait_until(lambda: not self._rights_of(user), "the broker goes by rights no more")

    def _rights_of(self, user: str | None) -> set[AclBinding]:
        """The rights that the broker applies, a moment after it was told."""
        return set(self.admin.describe_acls(_any_right(user)).result(patience()))

    def limit(self, user: str, bytes_per_s: int) -> None:
        """Give a user a quota of so many bytes a second, for what it sends and for what it reads; it counts at once."""
        quota = f"producer_byte_rate={bytes_per_s},consumer_byte_rate={bytes_per_s}"
        where = ["--entity-type", "users", "--entity-name", user]
        self.broker.tool("kafka.admin.ConfigCommand", "--alter", "--add-config", quota, *where)

    def set_scram_password(self, user: str, password: str) -> None:
        """Give a user this password for both SCRAM mechanisms."""
        for mechanism in SCRAM:
            change = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
            _all(self.admin.alter_user_scram_credentials([change]))


def _acl(user: str, kind: str, name: str, operation: str) -> tuple[Any, ...]:
    resource = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}.get(kind, ResourceType.TRANSACTIONAL_ID)
    operations = {"describeconfigs": "describe_configs", "alterconfigs": "alter_configs"}
    known = AclOperation[operations.get(operation.lower(), operation).upper()]
    return resource, name, ResourcePatternType.LITERAL, f"User:{user}", "*", known, AclPermissionType.ALLOW


def _any_right(user: str | None) -> AclBindingFilter:
    kinds = ResourceType.ANY, None, ResourcePatternType.ANY
    principal = f"User:{user}" if user else None
    return AclBindingFilter(*kinds, principal, None, AclOperation.ANY, AclPermissionType.ANY)


def _all(answers: Mapping[Any, Any]) -> None:
    for answer in answers.values():
        answer.result(patience())


@contextmanager
def secured_broker(folder: Path) -> Iterator[Secured]:
    """The broker, for as long as the block lasts."""
    tokens = TokenServer(folder, {user: password_of(user) for user in USERS})
    authority = Authority(folder, "ca")
    settings = _properties(authority, tokens)
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.token_url},{tokens.keys_url}"
    try:
        with Broker(properties=settings, listeners=LISTENERS, jvm=[allowed]) as broker:
            secured = Secured(broker, folder, authority, tokens)
            for user in USERS:
                secured.set_scram_password(user, password_of(user))
            yield secured
    finally:
        tokens.close()


def _properties(authority: Authority, tokens: TokenServer) -> dict[str, str]:
    good = authority.issue("broker", hosts=["localhost"])
    elsewhere = authority.issue("elsewhere", hosts=["kafka.example.org"])
    expired = authority.issue("expired-broker", hosts=["localhost"], days=-1)
    users = " ".join(f'user_{user}="{password_of(user)}"' for user in (*USERS, *SPARE, LIMITED))
    return {
        **PATIENT,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "false",
        "quota.window.num": str(QUOTA_WINDOW_S + 1),
        **_keystore("tls", good),
        **_keystore("mutual", good, authority),
        **_keystore("sasl", good),
        **_keystore("elsewhere", elsewhere),
        **_keystore("expired", expired),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl.plain.sasl.jaas.config": f"{PLAIN_LOGIN} {users};",
        "listener.name.open.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.open.plain.sasl.jaas.config": f"{PLAIN_LOGIN} {users};",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": SCRAM_LOGIN,
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": SCRAM_LOGIN,
        "listener.name.sasl.oauthbearer.sasl.jaas.config": OAUTH_LOGIN,
        "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class": OAUTH_VALIDATOR,
        "listener.name.sasl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": tokens.keys_url,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "listener.name.sasl.oauthbearer.sasl.oauthbearer.expected.issuer": tokens.url,
        "listener.name.sasl.oauthbearer.connections.max.reauth.ms": "60000",
    }


def _keystore(listener: str, own: Certificate, trusted: Authority | None = None) -> dict[str, str]:
    prefix = f"listener.name.{listener}.ssl"
    keys = {
        f"{prefix}.keystore.type": "PEM",
        f"{prefix}.keystore.certificate.chain": own.pem,
        f"{prefix}.keystore.key": own.key_pem,
    }
    if trusted is None:
        return keys
    return {**keys, f"{prefix}.truststore.type": "PEM", f"{prefix}.truststore.certificates": trusted.pem}
