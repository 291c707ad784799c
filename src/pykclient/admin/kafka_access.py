"""The methods of KafkaAdminClient for access control lists and SCRAM credentials, as kafka-python has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykclient.admin import expect
from pykclient.admin.access import (
    acl_arguments,
    alter_scram,
    create_acls,
    delete_acls,
    describe_acls,
    describe_scram,
    scram_alterations,
)
from pykclient.admin.admin_base import AdminBase
from pykclient.admin.plain import is_answer
from pykclient.admin.values import (
    ACL,
    ACLFilter,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from pykclient.errors import KafkaError, NoError


class AccessCalls(AdminBase):
    """Access control lists and SCRAM credentials."""

    def describe_acls(self, acl_filter: ACLFilter) -> tuple[list[ACL], type[KafkaError]]:
        """Return the ACLs that match a filter, and NoError.

        Raises:
            SecurityDisabledError: the brokers have no authorizer.
            ClusterAuthorizationError: not authorized to describe the cluster.
        """
        (wanted,) = acl_arguments([acl_filter], ACLFilter, "acl_filter")
        return self._run("describe_acls", None, lambda it: describe_acls(it, wanted)), NoError

    def create_acls(self, acls: Iterable[ACL]) -> dict[str, list[Any]]:
        """Create ACLs. Return those ``succeeded``, and the classes of the errors of those that ``failed``.

        Raises:
            KafkaError: an error that no broker has reported for an ACL, such as a timeout.
        """
        wanted = acl_arguments(acls, ACL, "acls")
        results = self._run("create_acls", None, lambda it: create_acls(it, wanted))
        for error in results.failed.values():
            if not is_answer(error):
                raise error
        return {
            "succeeded": [acl for acl in wanted if acl in results.succeeded],
            "failed": [type(results.failed[acl]) for acl in wanted if acl in results.failed],
        }

    def delete_acls(self, acl_filters: Iterable[ACLFilter]) -> list[tuple[ACLFilter, list[ACL], type[KafkaError]]]:
        """Delete the ACLs that match filters. Return for each filter the matching ACLs, and the class of its error.

        Raises:
            KafkaError: an error that no broker has reported for a filter, such as a timeout.
        """
        wanted = acl_arguments(acl_filters, ACLFilter, "acl_filters")
        results = self._run("delete_acls", None, lambda it: delete_acls(it, wanted))
        found: list[tuple[ACLFilter, list[ACL], type[KafkaError]]] = []
        for acl_filter in wanted:
            error = results.failed.get(acl_filter)
            if error is not None and not is_answer(error):
                raise error
            matching = [] if error is not None else list(results.succeeded[acl_filter])
            found.append((acl_filter, matching, NoError if error is None else type(error)))
        return found

    def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialDeletion | UserScramCredentialUpsertion]
    ) -> dict[str, str | None]:
        """Create, replace and delete SCRAM credentials. Return the text of the error of each user, None for success.

        Raises:
            KafkaError: an error that no broker has reported for a user, such as a timeout.
        """
        wanted = scram_alterations(alterations)
        results = self._run("alter_user_scram_credentials", None, lambda it: alter_scram(it, wanted))
        for error in results.failed.values():
            if not is_answer(error):
                raise error
        return {user: str(results.failed[user]) if user in results.failed else None for user in results}

    def describe_user_scram_credentials(self, users: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
        """Return the mechanisms and iterations of users, or of all that have credentials.

        Raises:
            ClusterAuthorizationError: not authorized to describe the cluster.
        """
        asked = None if users is None else expect.texts(users, "users")
        found = self._run("describe_user_scram_credentials", None, lambda it: describe_scram(it, asked))
        return {
            user.user: {
                "error": user.error_message if user.error_code else None,
                "credential_infos": [
                    {"mechanism": ScramMechanism.build_from(info.mechanism), "iterations": info.iterations}
                    for info in user.credential_infos
                ],
            }
            for user in found
        }
