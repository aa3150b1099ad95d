"""A cluster as each person sees it: its own word on roles counts, and names that it reserves are refused."""

import pytest
from support.cases import for_each

from dlrover_nb.core.backends.kubernetes.client.login import Login, impersonating
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs.decisions.people import AccessRole, Grant, Person
from dlrover_nb.dashboard.common.acting import KEPT_S, N_KEPT, ActingClusters

LOGIN = Login(None, "here", "dashboard", "ads")


class People:
    """A cluster that knows people, and counts how often it is asked."""

    def __init__(self, roles, person=None):
        self.roles, self.person, self.asked = roles, person, []

    def acting_as(self, person):
        self.asked.append((person.name, person.groups))
        return People(self.roles, person)

    def role_of_user(self):
        return self.roles.get(self.person.name)


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def core():
    return People({"ada": AccessRole.ADMIN, "vic": AccessRole.VIEWER})


@pytest.fixture
def acting(core, now):
    return ActingClusters(core, {"ads-team"}, monotonic=lambda: now[0])


@pytest.mark.parametrize(
    ("name", "granted", "role"),
    [
        ("ada", (), AccessRole.ADMIN),
        ("ada", (Grant(AccessRole.OPERATOR, "ads"),), AccessRole.OPERATOR),  # the dashboard takes from it
        ("vic", (Grant(AccessRole.ADMIN),), AccessRole.VIEWER),  # and never adds to it
        ("eve", (Grant(AccessRole.ADMIN),), None),
    ],
)
def test_a_role_is_the_weaker_of_what_the_cluster_and_the_dashboard_give(acting, name, granted, role):
    assert acting.known(Person(name, grants=granted), "ads").role_in("ads") is role


def test_a_role_of_one_namespace_is_none_of_another(acting):
    assert acting.known(Person("ada"), "ads").role_in("search") is None


def test_only_groups_that_the_server_may_name_are_named(acting, core):
    acting.cluster(Person("ada", groups=("everyone", "ads-team")))
    assert core.asked == [("ada", ("ads-team",))]


def test_a_right_that_was_taken_away_is_noticed_within_a_minute(acting, core, now):
    assert acting.known(Person("ada"), "ads").role_in("ads") is AccessRole.ADMIN
    del core.roles["ada"]
    now[0] = KEPT_S
    assert acting.known(Person("ada"), "ads").role_in("ads") is None
    assert len(core.asked) == 1, "the connection is kept"


def test_it_keeps_no_more_people_than_it_must(acting, core):
    for i in range(N_KEPT + 5):
        acting.cluster(Person(f"p{i}"))
    acting.cluster(Person("p0"))
    assert [name for name, _ in core.asked].count("p0") == 2


def test_a_login_acts_as_a_person_with_their_groups():
    assert impersonating(LOGIN, "ada", ["ads-team"]).headers == (
        ("Impersonate-User", "ada"),
        ("Impersonate-Group", "ads-team"),
    )


@for_each(
    ("user", "groups"),
    [("system:admin", ()), ("ada", ("system:masters",)), ("", ()), ("a\r\nX: y", ()), ("ädä", ())],
)
def test_names_that_kubernetes_reserves_or_no_header_holds_are_refused(user, groups):
    with pytest.raises(BackendError, match="no name to act as"):
        impersonating(LOGIN, user, groups)
