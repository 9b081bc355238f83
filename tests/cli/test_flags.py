"""Flags from dataclasses: how words are read, and what the help shows."""

import dataclasses
from typing import Annotated

import pytest

from pcpg.cli.flags import Arg, Mistake, Part, collect, parse, parse_parts


@dataclasses.dataclass(frozen=True)
class Inner:
    """Settings of a part."""

    rate: float = 0.5
    """A rate."""
    sizes: tuple[int, ...] = (8,)
    fast: bool = True


@dataclasses.dataclass(frozen=True)
class Command:
    """Do something.

    And say more about it.
    """

    dir: Annotated[str, Arg("DIR", "A folder.", positional=True)]
    inner: Inner = Inner()
    ridge: Annotated[float | None, Arg(aliases=("--lam",))] = None
    num_items: int = 3
    """Number of items."""
    dry: bool = False


def read(*words: str) -> Command:
    return parse(Command, words, "pcpg do")


def test_every_way_to_write_a_flag() -> None:
    assert read("runs/a") == Command("runs/a")
    assert read("--num_items", "4", "a", "--dry").num_items == read("a", "--num-items=4").num_items == 4
    assert read("a", "--lam", "-0.5").ridge == read("a", "--ridge=-0.5").ridge == -0.5
    assert read("a", "--ridge", "none").ridge is None
    inner = read("a", "--inner.sizes", "1", "2", "--inner.no-fast", "--inner.rate", "1e-3", "--inner.rate", "1").inner
    assert inner == Inner(1.0, (1, 2), fast=False)
    assert read("a", "--inner.sizes", "--no-dry") == Command("a", Inner(sizes=()))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Missing from pcpg do: DIR (see pcpg do --help)"),
        (("a", "b"), "Unrecognized options: b (see"),
        (("a", "--inner.rat", "1"), "Unrecognized options: --inner.rat, 1; did you mean --inner.rate for --inner.rat?"),
        (("a", "--rate", "1"), "did you mean --inner.rate for --rate?"),
        (("a", "--num-items", "--dry"), "--num-items needs a value"),
        (("a", "--num-items"), "--num-items needs a value"),
    ],
)
def test_a_wrong_flag_is_refused_in_one_line(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(Mistake) as refused:
        read(*words)
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_options_of_another_library_are_read_without_a_type() -> None:
    words = ["a", "--env.is-slippery", "False", "--env.desc=null", "--env.size", "8", "--env.map_name", "8x8"]
    command, options = parse_parts([Part(Command), Part(dict, {"seed": 1}, "env")], words, "pcpg do")
    assert command == Command("a")
    assert options == {"seed": 1, "is_slippery": False, "desc": None, "size": 8, "map_name": "8x8"}
    switches = ["a", "--env.wrap", "--env.no-reward", "--dry"]
    command, options = parse_parts([Part(Command), Part(dict, {}, "env")], switches, "pcpg do")
    assert command.dry and options == {"wrap": True, "reward": False}
    assert collect(["--env.size", "8", "b"], []) == ({}, ["--env.size", "8", "b"])


@pytest.mark.parametrize("width", ["100", "60"])
def test_the_help_shows_what_a_reader_needs(
    width: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    with pytest.raises(SystemExit) as ended:
        read("--help")
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert shown.startswith("usage: pcpg do DIR [OPTIONS]\n\nDo something.\n\nAnd say more about it.\n")
    assert max(map(len, shown.splitlines())) <= int(width)
    words = " ".join(shown.split())
    for part in (
        "DIR A folder.",
        "--num-items INT Number of items. (default: 3)",
        "inner: Settings of a part.",
        "--inner.rate NUMBER A rate. (default: 0.5)",
        "--inner.sizes INT ... (default: 8)",
        "--inner.[no-]fast (default: on)",
    ):
        assert part in words
    assert "None" not in shown and "''" not in shown and "--dry" in shown
