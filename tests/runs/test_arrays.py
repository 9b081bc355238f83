"""Arrays come back bit for bit, or the file says what happened to it."""

import copy
import errno
import os
import random
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcpg.runs.arrays import encode_arrays, read_arrays, write_arrays
from pcpg.runs.errors import BadValue, DamagedFile, DiskFull, DoesNotFit, OtherVersion, RunError
from pcpg.trees import flatten, unflatten

DTYPES = ["float32", "float64", "int32", "int64", "uint32", "uint8", "bool"]


class State(NamedTuple):
    params: Any
    count: Any


def example() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "w": rng.normal(size=(3, 4)).astype(np.float32),
        "n": np.array(7, np.int32),
        "m": np.ones(5, bool),
    }


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


any_array = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text(max_size=8).filter(lambda name: name != "__metadata__"), any_array, max_size=4))
def test_every_array_comes_back_bit_for_bit(arrays: dict[str, np.ndarray]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.safetensors"
        sha256 = write_arrays(path, arrays)
        back = read_arrays(path, sha256)
        assert list(back) == sorted(arrays)
        assert all(same_bits(back[name], arrays[name]) for name in arrays)
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.T,
        lambda a: a[:, ::2],
        lambda a: a[::-1],
        lambda a: np.asfortranarray(a),
        lambda a: np.broadcast_to(a[0], a.shape),
        lambda a: a[1:3, 1],
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_that_is_not_contiguous_is_stored_as_what_it_shows(tmp_path: Path, view: Any, dtype: str) -> None:
    array = view(np.arange(24).reshape(4, 6).astype(dtype))
    write_arrays(tmp_path / "a.safetensors", {"a": array})
    back = read_arrays(tmp_path / "a.safetensors")["a"]
    np.testing.assert_array_equal(back, array)
    assert back.dtype == array.dtype and back.shape == array.shape


def test_numbers_in_the_other_byte_order_keep_their_values(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.safetensors", {"a": np.array([1.5, -2.0], ">f4")})
    assert same_bits(read_arrays(tmp_path / "a.safetensors")["a"], np.array([1.5, -2.0], np.float32))


def test_odd_floats_keep_their_bits(tmp_path: Path) -> None:
    bits = np.array([0x7FC00001, 0xFFC12345, 0x80000000, 0x00000001, 0x7F800000], np.uint32)
    write_arrays(tmp_path / "a.safetensors", {"a": bits.view(np.float32)})
    np.testing.assert_array_equal(read_arrays(tmp_path / "a.safetensors")["a"].view(np.uint32), bits)


def test_the_same_content_in_another_order_gives_the_same_bytes(tmp_path: Path) -> None:
    arrays = example()
    one = write_arrays(tmp_path / "one.safetensors", arrays)
    other = write_arrays(tmp_path / "other.safetensors", dict(reversed(arrays.items())))
    assert one == other
    assert (tmp_path / "one.safetensors").read_bytes() == (tmp_path / "other.safetensors").read_bytes()


def test_a_file_cut_at_any_length_is_refused_as_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    sha256 = write_arrays(path, example())
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        for known in (sha256, None):
            with pytest.raises(DamagedFile, match=r"a\.safetensors: (cut short|empty)"):
                read_arrays(path, known)


def test_a_flipped_bit_anywhere_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    sha256 = write_arrays(path, example())
    data = path.read_bytes()
    rng = random.Random(0)
    for position in range(len(data)):
        altered = bytearray(data)
        altered[position] ^= 1 << rng.randrange(8)
        path.write_bytes(altered)
        with pytest.raises(DamagedFile, match=r"a\.safetensors"):
            read_arrays(path, sha256)
    altered = bytearray(data)
    altered[-1] ^= 1
    path.write_bytes(altered)
    with pytest.raises(DamagedFile, match=f"altered: its sha256 is .*, expected {sha256}"):
        read_arrays(path, sha256)


@pytest.mark.parametrize(
    "data",
    [
        b"this is some text, and long enough for a header",
        b"\x08" + bytes(7) + b"[[[[[[[[",
        b"\x40" + bytes(7) + b'{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'.ljust(64) + b"\0\0",
        encode_arrays({"a": np.zeros(3)}) + b"more",
    ],
)
def test_a_file_of_another_kind_is_called_that(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(data)
    with pytest.raises(DamagedFile, match=r"a\.safetensors: not a safetensors file"):
        read_arrays(path)


def test_a_missing_file_is_called_missing(tmp_path: Path) -> None:
    with pytest.raises(DamagedFile, match=r"nowhere\.safetensors: missing"):
        read_arrays(tmp_path / "nowhere.safetensors")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("a", [1, 2], "a is of type list, expected a numpy array"),
        ("a", np.array(["x"]), "a has dtype <U1, expected one of bool"),
        ("a", np.array([None]), "a has dtype object"),
        ("a", np.array([1j]), "a has dtype complex128"),
        ("a", np.array(jnp.zeros(2, jnp.bfloat16)), "a has dtype bfloat16"),
        ("a", np.ma.masked_array([1, 2], [True, False]), "a is of type MaskedArray"),
        ("__metadata__", np.zeros(2), "cannot be the name of an array"),
    ],
)
def test_what_cannot_be_stored_exactly_is_refused_by_name(tmp_path: Path, name: str, value: Any, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        write_arrays(tmp_path / "a.safetensors", {name: value})
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_gives_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot write .*nowhere/a\.safetensors: No such file"):
        write_arrays(tmp_path / "nowhere" / "a.safetensors", example())


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.safetensors"
    sha256 = write_arrays(path, example())

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFull, match=r"disk full while writing .*a\.safetensors; files already written are intact"):
        write_arrays(path, {"w": np.zeros(9)})
    read_arrays(path, sha256)
    assert os.listdir(tmp_path) == [path.name]


def test_modules_optimiser_states_and_named_tuples_go_flat_and_come_back(tmp_path: Path) -> None:
    network = eqx.filter(eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0)), eqx.is_array)
    tree = State({"net": network, "adam": optax.adam(1e-3).init(network)}, np.arange(3, dtype=np.uint32))
    sha256 = write_arrays(tmp_path / "a.safetensors", flatten(tree))
    arrays = read_arrays(tmp_path / "a.safetensors", sha256)
    assert ".params['net'].layers[0].weight" in arrays
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)
    for like in (tree, shapes):
        back = unflatten(like, arrays)
        assert jax.tree.structure(back) == jax.tree.structure(tree)
        for one, other in zip(jax.tree.leaves(back), jax.tree.leaves(tree), strict=True):
            assert isinstance(one, np.ndarray) and same_bits(one, np.asarray(other))


def test_a_single_array_and_an_empty_tree_are_trees_too() -> None:
    assert same_bits(unflatten(np.zeros(2), flatten(np.ones(2))), np.ones(2))
    assert unflatten({"a": None}, flatten({"a": None})) == {"a": None}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"['w']": np.zeros((2, 3), np.float32)}, r"missing: \['count'\]"),
        (
            {"['w']": np.zeros((2, 3), np.float32), "['counts']": np.zeros((), np.int32)},
            r"missing: \['count'\]; not expected: \['counts'\]; \['counts'\] was found where \['count'\]",
        ),
        (
            {"['w']": np.zeros((3, 2), np.float32), "['count']": np.zeros((), np.int32)},
            r"\['w'\]: found float32\[3, 2\], expected float32\[2, 3\]",
        ),
        (
            {"['w']": np.zeros((2, 3), np.float64), "['count']": np.zeros((), np.int32)},
            r"\['w'\]: found float64\[2, 3\], expected float32\[2, 3\]",
        ),
    ],
)
def test_arrays_that_do_not_fit_the_tree_are_refused_by_name(found: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(DoesNotFit, match=message):
        unflatten({"w": np.zeros((2, 3), np.float32), "count": np.zeros((), np.int32)}, found)


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (jax.random.key(0), r"\['k'\] is a typed random key \(key<fry>\): store the seed"),
        (1.5, r"\['k'\] is of type float, not an array"),
        (jax.nn.relu, r"\['k'\] is of type .*, not an array"),
        (jnp.asarray(1.5), r"\['k'\] is weakly typed"),
    ],
)
def test_leaves_that_would_not_come_back_the_same_are_refused(leaf: Any, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        flatten({"k": leaf})


def test_two_entries_of_one_name_are_refused() -> None:
    class Name(str):
        def __repr__(self) -> str:
            return "same"

    with pytest.raises(BadValue, match=r"two entries are named .*\[same\]"):
        flatten({Name("a"): np.zeros(1), Name("b"): np.zeros(1)})


@pytest.mark.parametrize("error", [DamagedFile("a", "cut"), OtherVersion("a", 2, 1), DiskFull("a", "b stays")])
def test_errors_can_be_rebuilt_from_their_arguments(error: RunError) -> None:
    assert str(copy.copy(error)) == str(error)
