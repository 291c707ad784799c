"""Access control lists, quotas, SCRAM credentials and delegation tokens: the steps of their methods."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pykclient.admin import expect
from pykclient.admin.admin_calls import Steps, ask, run
from pykclient.admin.api import AdminApiHandler, Answers, item_error, to_any_broker
from pykclient.admin.values import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
    Results,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from pykclient.argument_values import shown
from pykclient.errors import DuplicateResourceError, IllegalArgumentError, ResourceNotFoundError
from pykclient.network.client_request import RequestBuilder
from pykclient.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from pykclient.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from pykclient.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from pykclient.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from pykclient.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from pykclient.protocol.messages.describe_acls import DescribeAclsRequest
from pykclient.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from pykclient.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from pykclient.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from pykclient.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from pykclient.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

# --- access control lists ---

#: Requests about users need this version (KIP-373).
_USERS_FROM = 3


def _acl_builder(message: Any, filters: Sequence[ACLFilter]) -> RequestBuilder:
    has_users = any(found.resource_pattern.resource_type is ResourceType.USER for found in filters)
    return RequestBuilder(message, min_version=_USERS_FROM if has_users else None)


def acl_arguments(values: object, kind: type[ACLFilter], what: str) -> list[Any]:
    """Return a list of ACLs or filters, each once.

    Raises:
        IllegalArgumentError: one of them is of another type, or a name is no text.
    """
    found = expect.items(values, what, kind.__name__)
    for index, acl in enumerate(found):
        if not isinstance(acl, kind):
            raise IllegalArgumentError(f"{what}[{index}] is {shown(acl)}; it must be of type {kind.__name__}")
        for name in (acl.principal, acl.host, acl.resource_pattern.resource_name):
            check = expect.text if kind is ACL else expect.optional_text
            check(name, f"a name in {what}[{index}]")
    return list(dict.fromkeys(found))


def _acl(pattern: Any, acl: Any) -> ACL:
    return ACL(
        acl.principal,
        acl.host,
        ACLOperation.build_from(acl.operation),
        ACLPermissionType.build_from(acl.permission_type),
        ResourcePattern(
            ResourceType.build_from(pattern.resource_type),
            pattern.resource_name,
            ACLResourcePatternType.build_from(pattern.pattern_type),
        ),
    )


def _filter_fields(wanted: ACLFilter) -> dict[str, Any]:
    pattern = wanted.resource_pattern
    return {
        "resource_type_filter": pattern.resource_type.value,
        "resource_name_filter": pattern.resource_name,
        "pattern_type_filter": pattern.pattern_type.value,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation.value,
        "permission_type": wanted.permission_type.value,
    }


def describe_acls(wanted: ACLFilter) -> Steps[list[ACL]]:
    """Return the ACLs that match a filter."""
    request = DescribeAclsRequest(**_filter_fields(wanted))

    def read(response: Any) -> list[ACL]:
        return [_acl(resource, acl) for resource in response.resources for acl in resource.acls]

    return ask("describe_acls", to_any_broker(or_controller=True), _acl_builder(request, [wanted]), read)


def create_acls(acls: Sequence[ACL]) -> Steps[Results[ACL, None]]:
    """Create ACLs. One that exists already is a success."""

    def request(keys: Sequence[ACL], _timeout_ms: int) -> RequestBuilder:
        message = CreateAclsRequest(
            creations=[
                CreateAclsRequest.AclCreation(
                    resource_type=acl.resource_pattern.resource_type.value,
                    resource_name=acl.resource_pattern.resource_name or "",
                    resource_pattern_type=acl.resource_pattern.pattern_type.value,
                    principal=acl.principal or "",
                    host=acl.host or "",
                    operation=acl.operation.value,
                    permission_type=acl.permission_type.value,
                )
                for acl in keys
            ]
        )
        return _acl_builder(message, keys)

    def answers(keys: Sequence[ACL], response: CreateAclsResponse) -> Answers[ACL]:
        for acl, result in zip(keys, response.results, strict=False):  # in the order of the request
            yield acl, item_error(result), None

    return run(AdminApiHandler("create_acls", to_any_broker(or_controller=True), request, answers), acls)


def delete_acls(filters: Sequence[ACLFilter]) -> Steps[Results[ACLFilter, Results[ACL, None]]]:
    """Delete the ACLs that match filters, and return the deleted ACLs of each filter.

    After a lost response, the ACLs that the first attempt has deleted are not in the result.
    """

    def request(keys: Sequence[ACLFilter], _timeout_ms: int) -> RequestBuilder:
        message = DeleteAclsRequest(
            filters=[DeleteAclsRequest.DeleteAclsFilter(**_filter_fields(found)) for found in keys]
        )
        return _acl_builder(message, keys)

    def answers(keys: Sequence[ACLFilter], response: DeleteAclsResponse) -> Answers[ACLFilter]:
        for wanted, result in zip(keys, response.filter_results, strict=False):  # in the order of the request
            matching: Results[ACL, None] = Results()
            for found in result.matching_acls:
                error = item_error(found)
                acl = _acl(found, found)
                if error is None:
                    matching.succeeded[acl] = None
                else:
                    matching.failed[acl] = error
            yield wanted, item_error(result), matching

    return run(AdminApiHandler("delete_acls", to_any_broker(or_controller=True), request, answers), filters)


# --- quotas ---

#: An entity with quotas: pairs of a type ("user", "client-id", "ip") and a name, None for the default.
Entity = tuple[tuple[str, str | None], ...]

_EXACT, _DEFAULT, _ANY = 0, 1, 2


class ClientQuotaFilterComponent(NamedTuple):
    """A condition on one entity type: match the entity ``name``, the default entity (``name=None``), or any."""

    entity_type: str
    name: str | None = None
    matches_any: bool = False


def entity(value: object) -> Entity:
    """Return an entity from a dict of names by type.

    Raises:
        IllegalArgumentError: it is none, or empty.
    """
    given = expect.mapping(value, "an entity", "names by type")
    if not given:
        raise IllegalArgumentError("an entity is empty; name a user, a client-id or an ip")
    return tuple(
        sorted(
            (expect.text(kind, "the type of an entity"), expect.optional_text(name, "the name of an entity"))
            for kind, name in given.items()
        )
    )


def describe_quotas(
    components: Sequence[ClientQuotaFilterComponent], strict: bool
) -> Steps[dict[Entity, dict[str, float]]]:
    """Return the quotas of entities that match all components; ``strict`` excludes entities with other types."""
    request = DescribeClientQuotasRequest(
        components=[
            DescribeClientQuotasRequest.ComponentData(
                entity_type=component.entity_type,
                match_type=_ANY if component.matches_any else _DEFAULT if component.name is None else _EXACT,
                match=None if component.matches_any else component.name,
            )
            for component in components
        ],
        strict=strict,
    )

    def read(response: Any) -> dict[Entity, dict[str, float]]:
        return {
            tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)): {
                value.key: value.value for value in entry.values
            }
            for entry in response.entries or ()
        }

    return ask("describe_client_quotas", to_any_broker(), request, read)


def quota_filter(values: object) -> list[ClientQuotaFilterComponent]:
    """Return the components of a filter.

    Raises:
        IllegalArgumentError: one of them is no ClientQuotaFilterComponent.
    """
    found = expect.items(values, "components", "ClientQuotaFilterComponent")
    for index, component in enumerate(found):
        if not isinstance(component, ClientQuotaFilterComponent):
            raise IllegalArgumentError(f"components[{index}] must be a ClientQuotaFilterComponent")
        expect.text(component.entity_type, f"the type in components[{index}]")
        expect.optional_text(component.name, f"the name in components[{index}]")
        expect.flag(component.matches_any, f"matches_any in components[{index}]")
    return found


def alter_quotas(
    changes: Mapping[Entity, Mapping[str, float | None]], validate_only: bool
) -> Steps[Results[Entity, None]]:
    """Set quotas of entities; None removes one."""

    def request(keys: Sequence[Entity], _timeout_ms: int) -> AlterClientQuotasRequest:
        return AlterClientQuotasRequest(
            entries=[
                AlterClientQuotasRequest.EntryData(
                    entity=[
                        AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name) for kind, name in key
                    ],
                    ops=[
                        AlterClientQuotasRequest.OpData(
                            key=quota, value=0.0 if value is None else value, remove=value is None
                        )
                        for quota, value in changes[key].items()
                    ],
                )
                for key in keys
            ],
            validate_only=validate_only,
        )

    def answers(_keys: Sequence[Entity], response: Any) -> Answers[Entity]:
        for entry in response.entries:
            key = tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity))
            yield key, item_error(entry), None

    return run(AdminApiHandler("alter_client_quotas", to_any_broker(), request, answers), list(changes))


def quota_changes(values: object) -> dict[Entity, dict[str, float | None]]:
    """Return changes by entity, from pairs of an entity and its quotas by name.

    Raises:
        IllegalArgumentError: an argument is wrong, or an entity is given twice.
    """
    found: dict[Entity, dict[str, float | None]] = {}
    for pair in expect.items(values, "alterations", "pairs of an entity and its quotas"):
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise IllegalArgumentError("each of alterations must be a pair of an entity and its quotas")
        key = entity(pair[0])
        if key in found:
            raise IllegalArgumentError(f"alterations name {dict(key)} twice")
        found[key] = {}
        for quota, value in expect.mapping(pair[1], "the quotas of an entity", "values by name").items():
            name = expect.text(quota, "the name of a quota")
            found[key][name] = None if value is None else _quota(value, f"quota {name!r}")
    return found


def _quota(value: object, what: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            return float(value)
    raise IllegalArgumentError(f"{what} is {shown(value)}; it must be a number or None")


# --- SCRAM credentials ---

Alteration = UserScramCredentialDeletion | UserScramCredentialUpsertion


class ScramCredentialInfo(NamedTuple):
    """A SCRAM credential of a user; its secrets stay at the brokers."""

    mechanism: ScramMechanism
    iterations: int


def alter_scram(alterations: Sequence[Alteration]) -> Steps[Results[str, None]]:
    """Create, replace and delete SCRAM credentials, and return the outcome by user."""
    by_user: dict[str, list[Alteration]] = {}
    for alteration in alterations:
        by_user.setdefault(alteration.user, []).append(alteration)

    def request(keys: Sequence[str], _timeout_ms: int) -> AlterUserScramCredentialsRequest:
        asked = [alteration for key in keys for alteration in by_user[key]]
        return AlterUserScramCredentialsRequest(
            deletions=[
                AlterUserScramCredentialsRequest.ScramCredentialDeletion(
                    name=alteration.user, mechanism=alteration.mechanism.value
                )
                for alteration in asked
                if isinstance(alteration, UserScramCredentialDeletion)
            ],
            upsertions=[
                AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                    name=alteration.user,
                    mechanism=alteration.mechanism.value,
                    iterations=alteration.iterations,
                    salt=alteration.salt,
                    salted_password=alteration.salted_password,
                )
                for alteration in asked
                if isinstance(alteration, UserScramCredentialUpsertion)
            ],
        )

    def answers(_keys: Sequence[str], response: Any) -> Answers[str]:
        for result in response.results:
            error = item_error(result)
            only_deletes = all(isinstance(found, UserScramCredentialDeletion) for found in by_user.get(result.user, ()))
            if isinstance(error, ResourceNotFoundError) and only_deletes and result.user in handler.uncertain:
                error = None  # an earlier attempt has deleted it
            yield result.user, error, None

    handler: AdminApiHandler[str, None] = AdminApiHandler(
        "alter_user_scram_credentials", to_any_broker(), request, answers
    )
    return run(handler, list(by_user))


def scram_alterations(values: object) -> list[Alteration]:
    """Return a list of alterations.

    Raises:
        IllegalArgumentError: one of them is of another type, or has a wrong user, number of iterations or salt.
    """
    found = expect.items(values, "alterations", "UserScramCredentialUpsertion or UserScramCredentialDeletion")
    for index, alteration in enumerate(found):
        what = f"alterations[{index}]"
        if not isinstance(alteration, (UserScramCredentialDeletion, UserScramCredentialUpsertion)):
            raise IllegalArgumentError(
                f"{what} is of type {type(alteration).__name__}; it must be a UserScramCredentialUpsertion or a "
                "UserScramCredentialDeletion"
            )
        expect.text(alteration.user, f"the user of {what}")
        if isinstance(alteration, UserScramCredentialUpsertion):
            expect.number(alteration.iterations, f"the iterations of {what}", 1)
    return found


def describe_scram(
    users: Sequence[str] | None,
) -> Steps[list[DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult]]:
    """Return the SCRAM credentials of the given users, or of all users (None)."""
    request = DescribeUserScramCredentialsRequest(
        users=None if users is None else [DescribeUserScramCredentialsRequest.UserName(name=user) for user in users]
    )

    return ask("describe_user_scram_credentials", to_any_broker(), request, lambda response: response.results)


def scram_infos(
    found: Sequence[DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult],
) -> Results[str, list[ScramCredentialInfo]]:
    """Return the credentials in a response by user."""
    results: Results[str, list[ScramCredentialInfo]] = Results()
    for user in found:
        error = item_error(user)
        if error is not None and not isinstance(error, DuplicateResourceError):
            results.failed[user.user] = error
        elif error is not None:
            results.failed[user.user] = IllegalArgumentError(f"user {user.user!r} is named twice")
        else:
            results.succeeded[user.user] = [
                ScramCredentialInfo(ScramMechanism.build_from(info.mechanism), info.iterations)
                for info in user.credential_infos
            ]
    return results


# --- delegation tokens ---

#: A principal, such as ``("User", "alice")``.
Principal = tuple[str, str]


class DelegationToken(NamedTuple):
    """A delegation token. Times are in milliseconds since the epoch. ``hmac`` is its secret, which ``repr`` hides."""

    token_id: str
    hmac: bytes
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int

    def __repr__(self) -> str:
        return f"DelegationToken({self.token_id!r}, owner={self.owner}, hmac=<hidden>)"


def principals(values: object, what: str) -> list[Principal]:
    """Return principals as pairs of type and name, given as such pairs or as texts like ``User:alice``.

    Raises:
        IllegalArgumentError: one of them is neither.
    """
    found = []
    for index, value in enumerate(expect.items(values, what, "principals")):
        pair = tuple(value.split(":", 1)) if isinstance(value, str) else value
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise IllegalArgumentError(f"{what}[{index}] is {shown(value)}; write 'User:name'")
        found.append((expect.text(pair[0], f"{what}[{index}]"), expect.text(pair[1], f"{what}[{index}]")))
    return found


def create_token(
    renewers: Sequence[Principal], max_lifetime_ms: int, owner: Principal | None
) -> Steps[DelegationToken]:
    """Create a delegation token, for another owner if one is given (KIP-373)."""
    request = CreateDelegationTokenRequest(
        owner_principal_type=owner[0] if owner else "",
        owner_principal_name=owner[1] if owner else "",
        renewers=[
            CreateDelegationTokenRequest.CreatableRenewers(principal_type=kind, principal_name=name)
            for kind, name in renewers
        ],
        max_lifetime_ms=max_lifetime_ms,
    )

    def read(response: Any) -> DelegationToken:
        holder = (response.principal_type, response.principal_name)
        requester = (response.token_requester_principal_type, response.token_requester_principal_name)
        return DelegationToken(
            response.token_id,
            bytes(response.hmac),
            holder,
            requester if requester[0] else holder,
            tuple(renewers),
            response.issue_timestamp_ms,
            response.expiry_timestamp_ms,
            response.max_timestamp_ms,
        )

    builder = RequestBuilder(request, min_version=_USERS_FROM if owner else None)
    return ask("create_delegation_token", to_any_broker(), builder, read)


def describe_tokens(owners: Sequence[Principal] | None) -> Steps[list[DelegationToken]]:
    """Return the delegation tokens of the given owners, or all that this user may describe (None)."""
    request = DescribeDelegationTokenRequest(
        owners=None
        if owners is None
        else [
            DescribeDelegationTokenRequest.DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, name in owners
        ]
    )

    def read(response: Any) -> list[DelegationToken]:
        return [
            DelegationToken(
                token.token_id,
                bytes(token.hmac),
                (token.principal_type, token.principal_name),
                (token.token_requester_principal_type, token.token_requester_principal_name),
                tuple((renewer.principal_type, renewer.principal_name) for renewer in token.renewers),
                token.issue_timestamp,
                token.expiry_timestamp,
                token.max_timestamp,
            )
            for token in response.tokens
        ]

    return ask("describe_delegation_token", to_any_broker(), request, read)


def _expiry(response: Any) -> int:
    return int(response.expiry_timestamp_ms)


def renew_token(hmac: bytes, renew_period_ms: int) -> Steps[int]:
    """Extend the life of a token, and return when it expires in milliseconds since the epoch."""
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=renew_period_ms)
    return ask("renew_delegation_token", to_any_broker(), request, _expiry)


def expire_token(hmac: bytes, expiry_period_ms: int) -> Steps[int]:
    """Change when a token expires (now if ``expiry_period_ms`` is negative), and return that time."""
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=expiry_period_ms)
    return ask("expire_delegation_token", to_any_broker(), request, _expiry)


def secret(value: object) -> bytes:
    """Return the secret of a token.

    Raises:
        IllegalArgumentError: it is not bytes.
    """
    if not isinstance(value, bytes):
        raise IllegalArgumentError(f"hmac is of type {type(value).__name__}; it must be bytes")
    return value
