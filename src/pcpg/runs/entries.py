"""What the summary and the checkpoints of a run hold, each entry of its kind: a whole file may still be nobody's."""

from pathlib import Path
from typing import Any

from pcpg.runs.errors import DamagedFile


def check_summary(path: Path, summary: dict[str, Any], seeds: int) -> dict[str, Any]:
    """A summary whose entries, as far as it has them, are those of so many seeds; `DamagedFile` for any other."""
    kinds = {"seeds": int, "env_steps": int, "policies": int, "final_return": float, "best_return": float}
    for name, kind in kinds.items():
        if name in summary and not _is_list(summary[name], seeds, kind):
            raise DamagedFile(path, f"{name} must be a list of {seeds} numbers, got {summary[name]!r:.60}")
    if type(summary.get("rounds", 0)) is not int:
        raise DamagedFile(path, f"rounds must be an integer, got {summary['rounds']!r:.60}")
    _check_failed(path, summary)
    return summary


def check_state(path: Path, state: dict[str, Any]) -> None:
    """Raise `DamagedFile` unless a checkpoint says what it belongs to in the way that checkpoints do."""
    members, lines = state.get("members", []), state.get("metrics")
    if not isinstance(members, list) or not all(isinstance(sha256, str) for sha256 in members):
        raise DamagedFile(path, "it does not say which members the cover has")
    if lines is not None and (
        not isinstance(lines, list) or [type(one) for one in lines] != [int, str] or not 0 <= lines[0] < 1 << 40
    ):
        raise DamagedFile(path, "it does not say how long the reports are and what their sha256 is")
    for name in ("features", "device", "config"):
        if not isinstance(state.get(name), str | None):
            raise DamagedFile(path, f"{name} must be a string, got {state[name]!r:.60}")
    _check_failed(path, state)


def _check_failed(path: Path, content: dict[str, Any]) -> None:
    failed = content.get("failed", {})
    if not isinstance(failed, dict) or not all(seed.isdecimal() and type(why) is str for seed, why in failed.items()):
        raise DamagedFile(path, f"failed must say why each seed did, got {failed!r:.60}")


def _is_list(value: Any, length: int, kind: type) -> bool:
    if not isinstance(value, list) or len(value) != length:
        return False
    return all(type(one) in (kind, int) or (one is None and kind is float) for one in value)
