"""Legend: N envs, O flattened observation size."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.utils import ConfigError
from embodichain.utils.observations import (
    Mirror,
    dict_to_tensordict,
    entry_columns,
    flatten_dict_observation,
    select_entries,
)


def test_leaves_are_joined_in_sorted_key_order_level_by_level() -> None:
    td = TensorDict(
        {
            "robot": {"qvel": torch.tensor([[3.0]]), "qpos": torch.tensor([[1.0, 2.0]])},
            "object": {"pose": torch.tensor([[[10.0, 11.0], [12.0, 13.0]]])},
        },
        batch_size=[1],
    )
    # object/pose (2 x 2, row by row), robot/qpos, robot/qvel
    assert flatten_dict_observation(td).tolist() == [[10, 11, 12, 13, 1, 2, 3]]


def test_flat_observation_is_float32_whatever_the_leaves_are() -> None:
    td = TensorDict(
        {
            "a": torch.tensor([[0.5], [1.5]], dtype=torch.float64),
            "b": torch.tensor([True, False]),
            "c": torch.tensor([3, 4]),
        },
        batch_size=[2],
    )
    flat = flatten_dict_observation(td)
    assert flat.dtype == torch.float32
    assert flat.tolist() == [[0.5, 1, 3], [1.5, 0, 4]]


def test_nested_dictionaries_of_arrays_become_a_tensordict() -> None:
    obs = {"robot": {"qpos": np.zeros((2, 3), dtype=np.float32)}, "flag": torch.ones(2, dtype=torch.bool)}
    td = dict_to_tensordict(obs, "cpu")
    assert td.batch_size == (2,)
    assert td["robot", "qpos"].shape == (2, 3)
    assert td["robot", "qpos"].dtype == torch.float32
    assert td["flag"].dtype == torch.bool
    assert dict_to_tensordict(td, "cpu")["flag"].tolist() == [True, True]


def with_camera() -> TensorDict:
    camera = {"color": torch.full((2, 3, 4, 3), 7, dtype=torch.uint8), "depth": torch.ones(2, 1, 1, 1)}
    return TensorDict({"sensor": {"cam": camera}, "robot": {"qpos": torch.zeros(2, 2)}}, batch_size=[2])


def test_images_are_left_out_of_the_flat_observation() -> None:
    # robot/qpos; colour and depth are images, whatever their numbers are
    assert flatten_dict_observation(with_camera()).tolist() == [[0, 0]] * 2
    only_images = with_camera().select(("sensor", "cam", "color"))
    assert flatten_dict_observation(only_images).shape == (2, 0)


def test_entries_are_selected_by_name_with_their_dtype() -> None:
    entries = select_entries(with_camera(), ["sensor/cam/color", "robot/qpos"])
    assert list(entries.keys()) == ["sensor/cam/color", "robot/qpos"]
    assert entries["sensor/cam/color"].shape == (2, 3, 4, 3)
    assert entries["sensor/cam/color"].dtype == torch.uint8


def test_columns_of_entries_follow_the_flat_observation() -> None:
    # "a" sorts before "a_b" though "a/x" would sort after it: level by level
    space = spaces.Dict(
        {
            "a_b": spaces.Box(0, 1, (1,)),
            "a": spaces.Dict({"z": spaces.Box(0, 1, (2, 2)), "x": spaces.Box(0, 1, ())}),
            "image": spaces.Box(0, 255, (2, 2, 3), np.uint8),
            "last": spaces.Box(0, 1, (2,)),
        }
    )
    assert entry_columns(space) == {"a/x": slice(0, 1), "a/z": slice(1, 5), "a_b": slice(5, 6), "last": slice(6, 8)}
    td = TensorDict({"a_b": torch.ones(1, 1), "a": {"z": torch.zeros(1, 2, 2), "x": torch.zeros(1)}}, batch_size=[1])
    assert flatten_dict_observation(td).tolist() == [[0, 0, 0, 0, 0, 1]]


@pytest.mark.parametrize("name", ["sensor/cam/colour", "sensor/cam"])
def test_unknown_entry_is_an_error_that_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}'.*robot/qpos, sensor/cam/color, sensor/cam/depth"):
        select_entries(with_camera(), [name])


SWAP = Mirror.of([1, 0, 2], [-1, -1, 1], "here")


def test_mirror_permutes_components_and_their_signs() -> None:
    assert SWAP(torch.tensor([[1.0, 2.0, 3.0]])).tolist() == [[-2.0, -1.0, 3.0]]


def test_joined_mirrors_leave_each_part_in_its_place() -> None:
    joined = Mirror.joined([SWAP, Mirror.of([0], [-1], "here")])
    assert joined(torch.tensor([1.0, 2.0, 3.0, 4.0])).tolist() == [-2.0, -1.0, 3.0, -4.0]


@pytest.mark.parametrize(
    ("permutation", "signs"),
    [([0, 1], [1]), ([0, 2], [1, 1]), ([0, 0], [1, 1]), ([0], [2]), ([1, 2, 0], [1, 1, 1]), ([1, 0], [1, -1])],
)
def test_other_permutations_are_refused(permutation: list[int], signs: list[int]) -> None:
    with pytest.raises(ConfigError, match="here: must have each index"):
        Mirror.of(permutation, signs, "here")
