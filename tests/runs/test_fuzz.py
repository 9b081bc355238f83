"""A little of `python -m tests.fuzz`: random damage to a folder is told, refused or harmless, and never a surprise."""

from pathlib import Path

import pytest

from tests.fuzz import fuzz

pytestmark = pytest.mark.slow


def test_no_damage_goes_unnoticed_and_none_ends_in_a_traceback(tmp_path: Path) -> None:
    told: list[str] = []
    counts = fuzz(30, seed=5, root=tmp_path, say=told.append, kinds=("ppo-rnd",))
    assert not any(counts[how] for how in ("silent", "traceback", "hang", "unnoticed")), told
    assert counts["refused"] > 10 and counts["answered"] > 20
