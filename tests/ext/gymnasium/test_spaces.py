"""Legend: N envs."""

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from embodichain.ext.gymnasium.gymnasium_env import GymnasiumEnv, GymnasiumEnvCfg
from embodichain.ext.gymnasium.spaces import ActionAdapter, InfoReader, ObservationAdapter, columns_of, numbers_of
from embodichain.utils import CommandFailedError, ConfigError
from embodichain.utils.observations import entry_spaces, flatten_dict_observation
from tests.ext.gymnasium.scripted import registered

IMAGE = spaces.Box(0, 255, (4, 5, 3), np.uint8)
NUMBERS = spaces.Box(-1, 1, (2,), np.float64)


def test_a_box_is_one_entry() -> None:
    observe = ObservationAdapter(NUMBERS)
    obs = observe(np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]))
    assert obs.batch_size == torch.Size([3])
    assert obs["observation"].dtype == torch.float64
    assert flatten_dict_observation(obs).flatten().tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert observe.flat_space.shape == (2,)
    assert observe.space == spaces.Dict({"observation": spaces.Box(-np.inf, np.inf, (2,), np.float64)})


def test_image_stays_uint8_outside_the_flat_observation() -> None:
    observe = ObservationAdapter(IMAGE)
    obs = observe(np.full((2, 4, 5, 3), 7, np.uint8))
    assert obs["image"].dtype == torch.uint8
    assert obs["image"].shape == (2, 4, 5, 3)
    assert observe.flat_space.shape == (0,)
    assert flatten_dict_observation(obs).shape == (2, 0)


def test_entries_of_nested_dicts_are_named_by_their_path() -> None:
    space = spaces.Dict(
        {
            "state": spaces.Dict({"pose/x": NUMBERS, "contact": spaces.Box(0, 1, (), np.int8)}),
            "camera": IMAGE,
            "goal": spaces.Box(0, 9, (2, 2), np.float32),
        }
    )
    observe = ObservationAdapter(space)
    batch = {
        "state": {"pose/x": np.array([[1.0, 2.0]]), "contact": np.array([1], np.int8)},
        "camera": np.zeros((1, 4, 5, 3), np.uint8),
        "goal": np.array([[[3.0, 4.0], [5.0, 6.0]]], np.float32),
    }
    obs = observe(batch)
    assert list(entry_spaces(observe.space)) == ["camera", "goal", "state/contact", "state/pose/x"]
    # In the order of the names, without the image.
    assert flatten_dict_observation(obs).tolist() == [[3.0, 4.0, 5.0, 6.0, 1.0, 1.0, 2.0]]
    assert observe.flat_space.shape == (7,)
    assert obs["state", "pose", "x"].tolist() == [[1.0, 2.0]]


def test_three_dimensions_of_numbers_are_flattened() -> None:
    grid, mask = spaces.Box(-9, 9, (4, 4, 2), np.float32), spaces.Box(0, 1, (5, 5, 1), np.int8)
    observe = ObservationAdapter(spaces.Dict({"v": NUMBERS, "grid": grid, "mask": mask}))
    assert observe.flat_space.shape == (2 + 32 + 25,)
    numbers = np.arange(64, dtype=np.float32).reshape(2, 4, 4, 2)
    obs = observe({"v": np.zeros((2, 2)), "grid": numbers, "mask": np.ones((2, 5, 5, 1), np.int8)})
    assert flatten_dict_observation(obs)[1].tolist() == [*range(32, 64), *[1] * 25, 0, 0]
    assert entry_spaces(observe.space)["grid"] == spaces.Box(-np.inf, np.inf, (32,), np.float32)
    assert list(entry_spaces(ObservationAdapter(grid).space)) == ["observation"]


@pytest.mark.parametrize(
    ("space", "seen", "rows"),
    [
        (spaces.Discrete(3, start=2), np.array([2, 4]), [[1, 0, 0], [0, 0, 1]]),
        (spaces.MultiDiscrete([2, 3]), np.array([[1, 0], [0, 2]]), [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]),
        (spaces.MultiBinary(3), np.array([[1, 0, 1], [0, 0, 1]], np.int8), [[1, 0, 1], [0, 0, 1]]),
        (
            spaces.Tuple((spaces.Discrete(2), spaces.Box(-9, 9, (1,)))),
            (np.array([1, 0]), np.array([[5.0], [6.0]])),
            [[0, 1, 5], [1, 0, 6]],
        ),
    ],
)
def test_choices_are_read_one_hot_and_tuples_by_number(space: spaces.Space[Any], seen: Any, rows: Any) -> None:
    observe = ObservationAdapter(space)
    flat = flatten_dict_observation(observe(seen))
    assert flat.tolist() == rows
    assert observe.flat_space.shape == flat.shape[1:]


@pytest.mark.parametrize("value", [-1, 4])
def test_value_outside_a_discrete_observation_is_an_error(value: int) -> None:
    with pytest.raises(CommandFailedError, match=rf"its observation 'kind' is \[1, {value}\], outside Discrete\(4\)"):
        ObservationAdapter(spaces.Dict({"kind": spaces.Discrete(4)}))({"kind": np.array([1, value])})


@pytest.mark.parametrize(
    ("shape", "ours", "pixel"),
    [
        ((6, 7), (6, 7, 1), (2, 3)),  # grey
        ((3, 6, 7), (6, 7, 3), (1, 2, 3)),  # channels first
        ((6, 7, 3), (6, 7, 3), (2, 3, 1)),
        ((2, 6, 7, 3), (6, 7, 6), (1, 2, 3, 0)),  # two frames: the second one's channels are 3 to 5
        ((2, 3, 6, 7), (6, 7, 6), (1, 0, 2, 3)),  # their channels first
        ((9, 20, 21), (20, 21, 9), (5, 2, 3)),  # nine grey frames
    ],
)
def test_images_become_height_width_channels(
    shape: tuple[int, ...], ours: tuple[int, ...], pixel: tuple[int, ...]
) -> None:
    observe = ObservationAdapter(spaces.Box(0, 255, shape, np.uint8))
    image = np.zeros((2, *shape), np.uint8)
    image[(1, *pixel)] = 9
    seen = observe(image)["image"]
    assert seen.shape == (2, *ours)
    channel = {3: 1, 1: 0, 6: 3, 9: 5}[ours[2]]
    assert seen.nonzero().tolist() == [[1, 2, 3, channel]]


SUPPORTED = "supported are Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple spaces, of numbers and of images"


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Dict({"a": spaces.Dict({"b": spaces.Text(4)})}), f"its observation 'a/b' is a Text space; {SUPPORTED}"),
        (spaces.Box(0, 1, (2, 3, 4, 5)), f"its observation is a Box of shape [2, 3, 4, 5]; {SUPPORTED}"),
    ],
)
def test_other_observations_are_refused(space: spaces.Space[Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ObservationAdapter(space)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("space", "actions", "expected"),
    [
        (spaces.Discrete(3, start=2), [[0], [2]], [2, 4]),
        (spaces.MultiDiscrete([2, 3]), [[1, 0], [0, 2]], [[1, 0], [0, 2]]),
        (spaces.MultiBinary((2, 1)), [[1, 0], [0, 1]], [[[1], [0]], [[0], [1]]]),
    ],
)
def test_choices_are_the_environments_own_actions(space: spaces.Space[Any], actions: Any, expected: Any) -> None:
    act = ActionAdapter(space)
    taken = act(torch.tensor(actions, dtype=torch.float32))
    assert taken.tolist() == expected
    assert all(space.contains(row if space.shape else row.item()) for row in taken)


def test_actions_are_clipped_in_the_environments_own_type() -> None:
    act = ActionAdapter(spaces.Box(np.array([[-0.1], [0.0]]), np.array([[0.1], [np.inf]]), dtype=np.float64))
    assert act.space.shape == (2,)
    assert act.space.dtype == np.float32
    actions = act(torch.tensor([[-3.0, -3.0], [3.0, 3.0], [0.05, 0.5]]))
    assert actions.dtype == np.float64
    # The bound itself, and not 0.1 rounded to float32, which is above it.
    assert actions[:, :, 0].tolist() == [[-0.1, 0.0], [0.1, 3.0], [pytest.approx(0.05), 0.5]]


def test_other_actions_are_refused() -> None:
    with pytest.raises(ConfigError, match="its action is a Box of int64; supported are Discrete, MultiDiscrete and"):
        ActionAdapter(spaces.Box(0, 3, (2,), np.int64))


def test_numbers_in_an_info_are_found_at_any_depth() -> None:
    info = {"distance": np.float64(0.5), "near": np.bool_(True), "steps": 3, "array": np.array([2.0]), "name": "x"}
    info |= {"reward_terms": {"reach": torch.tensor(0.25), "deep": {"a": 1}}, "pose": np.zeros(3), "none": None}
    assert numbers_of(info) == {
        **{"distance": 0.5, "near": True, "steps": 3.0, "array": 2.0},
        **{"reward_terms/reach": 0.25, "reward_terms/deep/a": 1.0},
    }


class _Informed(gym.Env[Any, Any]):
    """Environment n has a distance of 10 n + t, a reward term of t, and after its third step a late number."""

    observation_space = action_space = gym.spaces.Box(-1, 1, (1,))

    def __init__(self) -> None:
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {"at_reset": 1.0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        info: dict[str, Any] = {"distance": 10.0 * action[0] + self.t, "near": action[0] > 0.5}
        info["reward_terms"] = {"reach": self.t}
        return np.zeros(1, np.float32), 1.0, False, False, info | ({"late": self.t} if self.t > 2 else {})


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_each_environments_numbers_are_metrics_and_rewards(vectorization: Any) -> None:
    with registered("Informed-v0", _Informed):
        env = GymnasiumEnv(GymnasiumEnvCfg("gymnasium:Informed-v0", num_envs=2, vectorization=vectorization))
        env.reset(seed=1)
        action = torch.tensor([[0.0], [1.0]])
        infos = [env.step(action)[4] for _ in range(3)]
        env.reset(seed=1)
        infos.append(env.step(action)[4])
        env.close()
    assert infos[1]["metrics"]["distance"].tolist() == [2.0, 12.0]
    assert infos[1]["metrics"]["near"].tolist() == [False, True]
    assert infos[1]["rewards"]["reach"].tolist() == [2.0, 2.0]
    # A name that comes later joins with the next rollout or evaluation.
    assert [sorted(info["metrics"]) for info in infos] == [["distance", "near"]] * 3 + [["distance", "late", "near"]]
    assert infos[3]["metrics"]["late"].tolist() == [4.0, 4.0]


def test_numbers_of_an_episodes_end_join_with_the_next_rollout() -> None:
    reader = InfoReader(1)
    ends = [reader.read(columns_of([info]))["metrics"] for info in ({}, {"score": 7.0})]
    reader.begin()
    later = [reader.read(columns_of([info]))["metrics"] for info in ({}, {"score": 7.0})]
    reader.begin(is_evaluation=True)
    third = [reader.read(columns_of([info]))["metrics"] for info in ({}, {"last": 1.0})]
    assert ends == [{}, {}]
    assert [sorted(each) for each in third] == [["score"], ["last", "score"]]
    assert [each["score"].item() for each in later] == pytest.approx([math.nan, 7.0], nan_ok=True)


def test_missing_numbers_are_nan_missing_rewards_zero() -> None:
    reader = InfoReader(2)
    first = reader.read(columns_of([{"m": 3.0, "rewards/r": 5.0, "flag": True}, {}]))
    second = reader.read({})
    assert first["metrics"]["m"].tolist() == pytest.approx([3.0, math.nan], nan_ok=True)
    assert first["metrics"]["flag"].tolist() == [True, False]
    assert second["metrics"]["m"].isnan().all()
    assert second["metrics"]["flag"].tolist() == [False, False]
    assert second["metrics"]["flag"].dtype == torch.bool
    assert (first["rewards"]["r"].tolist(), second["rewards"]["r"].tolist()) == ([5.0, 0.0], [0.0, 0.0])
    assert not reader.knows_success


@pytest.mark.parametrize(
    "space",
    [
        {"a": NUMBERS, "a/b": NUMBERS},
        {"a": spaces.Dict({"b": NUMBERS}), "a/b": IMAGE},
        {"a/b": NUMBERS, "a": spaces.Dict({"b": spaces.Dict({"c": IMAGE})})},
    ],
)
def test_entries_that_would_have_one_place_are_refused(space: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="collide: a slash in a key separates"):
        ObservationAdapter(spaces.Dict(space))
