"""Access control lists at the controller: checks, limits, and filters; `tests/interop` compares them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import finish
from ottla.controller.state import MAX_RECORDS_PER_REQUEST
from ottla.metadata.acls import acl_of, created_acl, deleted_acl
from ottla.metadata.snapshot import snapshot_records
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.metadata_records import AccessControlEntryRecord
from ottla.security.acl import Acl

from .support import Cluster

EVERYTHING = DeleteAclsFilter(1, None, 1, None, None, 1, 1)

creations = st.builds(
    AclCreation,
    st.sampled_from((2, 3, 5)),
    st.sampled_from(("*", "a", "ab", "b")),
    st.sampled_from((3, 4)),
    st.sampled_from(("User:a", "User:*", "Group:a")),
    st.sampled_from(("*", "10.0.0.7")),
    st.sampled_from((2, 3, 8)),
    st.sampled_from((2, 3)),
)
filters = st.builds(
    DeleteAclsFilter,
    st.sampled_from((1, 2, 3)),
    st.sampled_from((None, "*", "a", "ab", "abc")),
    st.sampled_from((1, 2, 3, 4)),
    st.sampled_from((None, "User:a", "User:*")),
    st.sampled_from((None, "*", "10.0.0.7")),
    st.sampled_from((1, 2, 3)),
    st.sampled_from((1, 2, 3)),
)


def rule(name: str = "orders", principal: str = "User:a") -> AclCreation:
    return AclCreation(2, name, 3, principal, "*", 3, 3)


def create(cluster: Cluster, *rules: AclCreation) -> list[int]:
    response = cluster.do(cluster.controller.create_acls(CreateAclsRequest(list(rules))))
    return [result.error_code for result in response.results]


def rules_of(cluster: Cluster) -> list[Acl]:
    return [acl_of(record) for record in cluster.controller.image.acls.values()]


def selects(chosen: DeleteAclsFilter, acl: Acl) -> bool:
    """Read KIP-290 again: ANY selects each pattern with the name, MATCH each pattern that the name matches."""
    pattern = acl.pattern
    if chosen.resource_type_filter not in (1, pattern.resource_type):
        return False
    wanted, kind = chosen.resource_name_filter, chosen.pattern_type_filter
    if kind in (3, 4) and kind != pattern.pattern_type:
        return False
    if wanted is not None:
        names_match = pattern.name == wanted
        if kind == 2:
            names_match = (
                wanted.startswith(pattern.name) if pattern.pattern_type == 4 else pattern.name in (wanted, "*")
            )
        if not names_match:
            return False
    return (
        chosen.principal_filter in (None, acl.principal)
        and chosen.host_filter in (None, acl.host)
        and chosen.operation in (1, acl.operation)
        and chosen.permission_type in (1, acl.permission)
    )


@given(st.lists(creations, max_size=15), st.lists(filters, min_size=1, max_size=3))
def test_filters_delete_what_they_select(rules: list[AclCreation], chosen: list[DeleteAclsFilter]) -> None:
    cluster = Cluster()
    assert create(cluster, *rules) == [0] * len(rules)
    before = rules_of(cluster)
    assert sorted(before) == sorted({created_acl(each) for each in rules})
    response = cluster.do(cluster.controller.delete_acls(DeleteAclsRequest(chosen)))
    for each, result in zip(chosen, response.filter_results, strict=True):
        assert [deleted_acl(match) for match in result.matching_acls] == [acl for acl in before if selects(each, acl)]
    assert rules_of(cluster) == [acl for acl in before if not any(selects(each, acl) for each in chosen)]


def test_rule_that_exists_has_no_second_record() -> None:
    cluster = Cluster()
    assert create(cluster, rule(), rule(), rule("other")) == [0, 0, 0]
    outcome = finish(cluster.controller.create_acls(CreateAclsRequest([rule(), rule("third")])))
    [record] = outcome.records
    assert isinstance(record, AccessControlEntryRecord)
    assert record.resource_name == "third"


def test_invalid_rules_have_errors_of_their_own() -> None:
    cluster = Cluster()
    codes = create(cluster, rule(), rule(""), rule(principal="a"), AclCreation(4, "mine", 3, "User:a", "*", 3, 3))
    assert codes == [0, *[ErrorCode.INVALID_REQUEST] * 3]
    assert len(rules_of(cluster)) == 1


def test_requests_for_too_many_rules_fail_as_a_whole() -> None:
    cluster = Cluster()
    names = [f"t{number}" for number in range(MAX_RECORDS_PER_REQUEST + 1)]
    with pytest.raises(KafkaError) as caught:
        create(cluster, *map(rule, names))
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    create(cluster, *map(rule, names[:-1]))
    create(cluster, rule(names[-1]))
    with pytest.raises(KafkaError, match="Cannot remove more than 10000 acls") as caught:
        cluster.do(cluster.controller.delete_acls(DeleteAclsRequest([EVERYTHING])))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert len(rules_of(cluster)) == len(names)


def test_snapshot_has_the_rules() -> None:
    cluster = Cluster()
    create(cluster, rule(), rule("other"))
    image = cluster.controller.image
    written = [each for each in snapshot_records(image) if isinstance(each, AccessControlEntryRecord)]
    assert written == list(image.acls.values())
