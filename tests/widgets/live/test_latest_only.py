from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.widgets.live.controls.latest_only import LatestOnly


class Later:
    """A pool whose work a test does by hand."""

    def __init__(self) -> None:
        self.work = []

    def submit(self, run) -> None:
        self.work.append(run)

    def do(self) -> None:
        while self.work:
            self.work.pop(0)()


def test_of_questions_that_come_meanwhile_only_the_newest_is_answered():
    pool, answered = Later(), []

    def answer(question: int) -> None:
        answered.append(question)
        if question == 3:
            for n in (4, 5, 6):
                latest.ask(n)

    latest = LatestOnly(answer, pool)
    for n in (1, 2, 3):
        latest.ask(n)
    assert len(pool.work) == 1  # one on its way at a time
    pool.do()
    assert answered == [3, 6]


@settings(deadline=None)
@given(st.lists(st.booleans()))
def test_the_last_question_is_always_answered_and_none_after_a_newer_one(steps):
    pool, answered, n = Later(), [], 0
    latest = LatestOnly(answered.append, pool)
    for is_asked in steps:
        if is_asked:
            latest.ask(n)
            n += 1
        else:
            pool.do()
    pool.do()
    assert answered == sorted(answered)
    assert not n or answered[-1] == n - 1
