"""Every call needs one right, and what carries that right is what the shipped roles allow."""

from dataclasses import dataclass
from typing import get_args

import pytest

from dlrover_nb.core.client.link.calls import RIGHTS, AskModel, Call, Choose, right_of
from dlrover_nb.core.manifests.role_rules import OPERATOR, USER, VIEWER, granted
from dlrover_nb.core.structs.decisions.call_rights import METHOD_OF, METHODS, VERBS, CallRight, access_token
from dlrover_nb.core.structs.training.shards import BatchChoice, FinishChoice, ShardAction, ShardChoice


def test_each_kind_of_call_has_its_right():
    assert set(RIGHTS) == set(get_args(Call)), "a new call needs a line in the table"


def test_a_call_that_the_table_does_not_know_needs_the_strongest_right():
    @dataclass(frozen=True)
    class Explode:
        pass

    assert right_of(Explode()) is max(CallRight)


def test_to_view_is_to_ask_and_all_that_changes_a_job_needs_more():
    viewing = {call for call, right in RIGHTS.items() if right is CallRight.VIEW}
    asking = {call for call in get_args(Call) if call.__name__.startswith("Ask")}
    assert viewing == asking - {AskModel}


def test_to_finish_is_to_end_and_other_choices_steer():
    assert right_of(Choose(finish=FinishChoice("ada", ""))) is CallRight.END
    assert right_of(Choose(batches=BatchChoice((("w-0", 8),), "ada", ""))) is CallRight.STEER
    assert right_of(Choose(shard=ShardChoice(1, ShardAction.SKIP, "ada", ""))) is CallRight.STEER
    both = Choose(ShardChoice(1, ShardAction.SKIP, "ada", ""), finish=FinishChoice("ada", ""))
    assert right_of(both) is CallRight.END


@pytest.mark.parametrize(
    ("role", "most"), [(VIEWER, CallRight.VIEW), (OPERATOR, CallRight.STEER), (USER, CallRight.END)]
)
def test_a_shipped_role_allows_the_methods_of_its_rights_and_no_other(role, most):
    verbs = {verb for _, what, verb in granted(role) if what == "pods/proxy"}
    assert verbs == {VERBS[METHOD_OF[right]] for right in CallRight if right <= most}


def test_each_right_has_one_method_and_one_token():
    assert sorted(METHODS.values()) == sorted(METHOD_OF) == list(CallRight)
    tokens = {access_token("the-token", right) for right in CallRight}
    assert len(tokens | {"the-token"}) == 1 + len(CallRight)
    assert not tokens & {access_token("another", right) for right in CallRight}


def test_a_viewer_reads_no_secret_and_changes_nothing():
    assert {verb for _, _, verb in granted(VIEWER)} == {"get", "list", "watch"}
    assert "secrets" not in {what for _, what, _ in granted(VIEWER)}
    assert granted(VIEWER) < granted(OPERATOR) < granted(USER)
