"""Noise, delay and history of observations by hand. Shapes: N = 2 environments."""

from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.measurements import Recipe, deployed_as, measured, recipe_of
from embodichain.utils import ConfigError, replace
from tests.lab.gym.envs.test_state import assert_goes_on
from tests.lab.scenes import actions_for, cart_cfg

LIMIT = 4  # steps of an episode


def clock(env: EmbodiedEnv) -> Tensor:
    """Return 10 times the episode's number plus its step, [N, 1]: what is seen tells when it was."""
    return (10 * env.random.episode + env.elapsed_steps).float()[:, None]


def image(env: EmbodiedEnv) -> Tensor:
    return torch.zeros(env.num_envs, 2, 2, 3, dtype=torch.uint8)


TIME = {"func": clock, "name": "time"}


def modify(func: str, **params: Any) -> dict[str, Any]:
    return {"func": func, "mode": "modify", "name": "time", "params": params}


def env_with(num_envs: int = 2, first: int = 0, /, **terms: Any) -> EmbodiedEnv:
    cfg = cart_cfg(num_envs, {"observations": {"time": TIME} | terms}, max_episode_steps=LIMIT)
    return EmbodiedEnv(replace(cfg, first_env_id=first))


def run(env: EmbodiedEnv, steps: int) -> tuple[list[list[float]], list[list[float]]]:
    """Return environment 0's entry after a reset and each step: as the next action sees it, and in ``final_obs``."""
    obs, _ = env.reset(seed=1)
    seen, last = [obs["time"][0].tolist()], []
    for action in actions_for(env, steps):
        obs, *_, info = env.step(action)
        seen.append(obs["time"][0].tolist())
        last.append(info["final_obs"]["time"][0].tolist())
    return seen, last


def test_delayed_entry_is_that_of_some_steps_ago() -> None:
    seen, last = run(env_with(late=modify("observation_delay", delay=[2, 2])), 2 * LIMIT)
    # Episode 0: steps 0 to 4, of which the fourth is seen in final_obs alone; then episode 1 begins.
    assert [row[0] for row in seen] == [0, 0, 0, 1, 10, 10, 10, 11, 20]
    assert [row[0] for row in last] == [0, 0, 1, 2, 10, 10, 11, 12]


def test_history_has_the_last_values_oldest_first() -> None:
    seen, last = run(env_with(past=modify("observation_history", length=3)), LIMIT + 1)
    assert seen == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [10, 10, 10], [10, 10, 11]]
    assert last == [[0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [10, 10, 11]]


def test_history_of_vectors_is_side_by_side() -> None:
    env = env_with(past={**modify("observation_history", length=2), "name": "robot/qpos"})
    plain = env_with()
    pairs = [(env.reset(seed=1)[0], plain.reset(seed=1)[0])]
    pairs += [(env.step(a)[0], plain.step(a)[0]) for a in actions_for(env, 2)]
    before, now = (plain_obs["robot", "qpos"] for _, plain_obs in pairs[1:])
    assert torch.equal(pairs[2][0]["robot", "qpos"], torch.cat((before, now), dim=1))


def test_terms_act_in_the_order_of_the_config() -> None:
    late, past = modify("observation_delay", delay=[1, 1]), modify("observation_history", length=2)
    seen, _ = run(env_with(late=late, past=past), 3)
    assert seen == [[0, 0], [0, 0], [0, 1], [1, 2]]
    # A delayed history is the same here; its first values are those of the first history.
    assert run(env_with(past=past, late=late), 3)[0] == seen


def test_delay_is_drawn_for_each_episode_and_environment() -> None:
    env = env_with(40, late=modify("observation_delay", delay=[0, 2]))
    env.reset(seed=1)
    lags = []
    for _ in range(2):  # two episodes
        for action in actions_for(env, LIMIT):
            info = env.step(action)[4]
        # At the end of an episode of 4 steps, a lag of 0, 1 or 2 shows step 4, 3 or 2.
        lags.append(LIMIT - info["final_obs"]["time"][:, 0] % 10)
    assert [lag.unique().tolist() for lag in lags] == [[0, 1, 2]] * 2
    assert not torch.equal(*lags)


@pytest.mark.parametrize(("params", "spread"), [({"bound": 0.5}, 0.5 / 3**0.5), ({"std": 0.5}, 0.5)])
def test_noise_has_the_given_spread_and_is_drawn_at_each_step(params: dict[str, float], spread: float) -> None:
    env = env_with(500, noise=modify("observation_noise", **params))
    obs, _ = env.reset(seed=1)
    first = obs["time"][:, 0].clone()
    second = env.step(actions_for(env, 1)[0])[0]["time"][:, 0] - 1
    for noise in (first, second):
        # of 500 draws: the mean's standard deviation is spread / 22
        assert abs(noise.mean()) < 4 * spread / 22
        assert noise.std() == pytest.approx(spread, rel=0.15)
    assert noise.abs().max() <= 0.5 or "std" in params
    assert abs(torch.corrcoef(torch.stack((first, second)))[0, 1]) < 0.2


def test_noise_of_a_step_does_not_depend_on_others_resets() -> None:
    env = env_with(2, noise=modify("observation_noise", bound=0.5))
    env.reset(seed=1)
    env.elapsed_steps += torch.tensor([0, 2])
    for action in actions_for(env, 2):
        obs, *_, info = env.step(action)
    assert torch.equal(obs["time"][0], info["final_obs"]["time"][0])  # environment 1 began an episode
    assert obs["time"][1] != info["final_obs"]["time"][1]


ALL = {
    "noise": modify("observation_noise", std=0.3),
    "late": modify("observation_delay", delay=[0, 3]),
    "past": modify("observation_history", length=3),
}


def test_rows_depend_neither_on_num_envs_nor_on_chunks() -> None:
    env, single = env_with(6, **ALL), [env_with(1, i, **ALL) for i in range(6)]
    for each in (env, *single):
        each.reset(seed=3)
        each.elapsed_steps += (torch.arange(each.num_envs) + each.cfg.first_env_id) % LIMIT
    chunks = actions_for(env, 12).unflatten(0, (4, 3)).transpose(1, 2)  # 4 chunks [N, 3, A]
    for chunk in chunks:
        obs, *_, info = env.step_chunk(chunk)
        for i, one in enumerate(single):
            for h in range(int(info["executed"][i].sum())):
                alone, *_, noted = one.step(chunk[i : i + 1, h])
            assert torch.equal(obs["time"][i], alone["time"][0])
            assert torch.equal(info["final_obs"]["time"][i], noted["final_obs"]["time"][0])


def test_checkpoint_within_episodes_continues_bit_for_bit() -> None:
    assert_goes_on(lambda: env_with(6, **ALL), steps=5)  # in the second episode of 4 steps


@pytest.mark.parametrize(
    ("term", "message"),
    [
        (modify("observation_noise"), "params.bound: give either bound .* or std .*, got neither"),
        (modify("observation_noise", bound=1.0, std=1.0), "params.bound: give either .*, got bound=1.0, std=1.0"),
        (modify("observation_delay", delay=[2, 1]), r"params\.delay: must be \[lowest, highest\]"),
    ],
)
def test_bad_parameters_are_one_line(term: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"env\.observations\.bad\.{message}") as caught:
        env_with(bad=term)
    assert len(str(caught.value).splitlines()) == 1


def test_noise_on_whole_numbers_is_an_error() -> None:
    noise = {**modify("observation_noise", bound=1.0), "name": "look"}
    message = r"^env\.observations: observation_noise cannot change 'look', .*torch\.uint8"
    with pytest.raises(ConfigError, match=message):
        env_with(look={"func": image}, noise=noise)


@measured("positions of all joints, rad or m", lambda env: list(env.robot.joint_names))
def positions(env: EmbodiedEnv) -> Tensor:
    return env.robot.get_qpos()


def undescribed(env: EmbodiedEnv) -> Tensor:
    return env.robot.get_qpos()


def doubled(env: EmbodiedEnv, data: Tensor) -> Tensor:
    return 2 * data


def modified(func: Any, **params: Any) -> dict[str, Any]:
    return {"func": func, "mode": "modify", "name": "x", "params": params}


def recipe_for(entry: str = "x", **terms: Any) -> Recipe | None:
    env = EmbodiedEnv(cart_cfg(2, {"observations": terms}))
    return env.observation_manager.recipe(entry)


ADDED = {"func": positions, "name": "x"}


def test_recipe_of_an_entry_is_that_of_its_terms_in_their_order() -> None:
    noise, past = modified("observation_noise", std=0.1), modified("observation_history", length=3)
    late = modified("observation_delay", delay=[0, 1])
    found = recipe_for(x=ADDED, noise=noise, late=late, past=past)
    assert found is not None
    assert found.steps == [{"measurement": "positions"}, {"history": 3}]
    (measurement,) = found.measurements
    assert measurement.components == ["slider_to_cart", "cart_to_pole"]
    assert measurement.read().shape == (2, 2)


def test_entry_with_one_term_that_does_not_say_so_has_no_recipe() -> None:
    assert recipe_for(x={"func": undescribed}, past=modified("observation_history", length=3)) is None
    assert recipe_for(x=ADDED, twice=modified(doubled)) is None
    assert recipe_for("robot/other") is None  # of no term


def test_joint_positions_of_the_robot_have_a_recipe_without_a_term() -> None:
    past = {**modified("observation_history", length=3), "name": "robot/qpos"}
    found = recipe_for("robot/qpos", past=past)
    assert found is not None
    assert found.steps == [{"measurement": "robot/qpos"}, {"history": 3}]


def test_entry_made_again_has_its_last_recipe() -> None:
    found = recipe_for(x={"func": undescribed}, again=ADDED)
    assert found is not None
    assert found.steps == [{"measurement": "positions"}]


def test_recipe_is_given_the_parameters_with_their_defaults() -> None:
    @deployed_as(lambda env, joint, shift: Recipe([{"subtract": [joint, shift]}]))
    def term(env: EmbodiedEnv, joint: int, shift: float = 0.5) -> Tensor:
        return torch.zeros(2, 1)

    env: Any = None
    assert recipe_of(env, term, {"joint": 3}) == Recipe([{"subtract": [3, 0.5]}])
    assert recipe_of(env, undescribed, {}) is None


@measured("position of one joint, rad or m")
def one_position(env: EmbodiedEnv, joint: int, factor: float = 2.0) -> Tensor:
    return factor * env.robot.get_qpos()[:, joint : joint + 1]


def test_measured_term_is_read_with_its_parameters() -> None:
    found = recipe_for(x={"func": one_position, "name": "x", "params": {"joint": 1}})
    assert found is not None
    (measurement,) = found.measurements
    assert measurement.name == "one_position"
    assert measurement.read().tolist() == [[pytest.approx(0.14)]] * 2  # 2 x 0.07, the initial position
