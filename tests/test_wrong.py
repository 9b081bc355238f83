"""A little of `python -m tests.wrong`: mistakes in commands and calls are refused in one line, and leave nothing."""

import pytest

from tests import wrong

pytestmark = pytest.mark.slow


def test_wrong_commands_and_calls_are_refused_in_one_line() -> None:
    assert wrong.tried(200, 60, seed=0, say=lambda text: None) == []


def test_what_is_not_refused_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong.answer_of(["envs"]).how == "taken"
    monkeypatch.setattr(wrong, "main", lambda words: print(1 / 0))
    assert wrong.answer_of(["envs"]).how == "traceback"
    assert wrong.answer_of_call(lambda: 1).how == "taken"
    assert wrong.answer_of_call(lambda: int("x")).how == "traceback", "it is not ours"
