"""What is said of a job that no master answers for."""

from __future__ import annotations

from support.cases import for_each

from dlrover_nb.core.client.cluster import no_job


@for_each(
    ("name", "told"),
    [
        ("clicks", "job clicks is over and its master is gone; `%dlrover history clicks` shows what it did"),
        ("view", "no job 'view' at here:1; did you mean views?"),
        ("click", "no job 'click' at here:1; did you mean clicks?"),
        ("zzz", "no job 'zzz' at here:1; jobs here: ads, views"),
    ],
)
def test_a_job_of_the_history_is_not_just_unknown(name: str, told: str) -> None:
    assert no_job(name, "at here:1", ["views", "ads"], {"clicks"}) == told
