"""The fixed order of a step, and what its results are. Shapes: N environments, T steps of a rollout."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym.envs import BaseEnv, EmbodiedEnv
from embodichain.lab.sim.random import CounterRandom
from embodichain.utils import ConfigError, replace
from tests.lab.originals import PUSH_CUBE
from tests.lab.scenes import BOX, actions_for, cart_cfg, env_of, state

pytestmark = pytest.mark.e2e

NEVER = 99


class Scripted(EmbodiedEnv):
    """Env i succeeds at step ``success_at[i]`` of an episode, fails and is cut off likewise; the reward is the step."""

    success_at = (NEVER, NEVER)
    fail_at = (NEVER, NEVER)
    cut_at = (NEVER, NEVER)

    def compute_task_state(self, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        step = self.elapsed_steps
        return step == torch.tensor(self.success_at), step == torch.tensor(self.fail_at), {"step": step.float()}

    def check_truncated(self, obs: TensorDict, info: dict[str, Any]) -> Tensor:
        return self.elapsed_steps == torch.tensor(self.cut_at)

    def get_reward(self, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        return self.elapsed_steps.float()


def scripted(**settings: Any) -> Scripted:
    """Build an environment of two; settings that are no tuples go into the config."""
    limits = {key: value for key, value in settings.items() if key == "max_episode_steps"}
    env = Scripted(cart_cfg(2, **limits))
    for key, value in settings.items():
        if key not in limits:
            setattr(env, key, value)
    env.reset(seed=1)
    return env


def ends(env: BaseEnv, steps: int) -> tuple[list[list[bool]], list[list[bool]]]:
    """Return terminated and truncated, a list of N for each step."""
    results = [env.step(torch.zeros(2, 1)) for _ in range(steps)]
    return [r[2].tolist() for r in results], [r[3].tolist() for r in results]


def leaves(obs: Any) -> dict[str, Tensor]:
    """Return the tensors of a nested observation by slash-separated name."""
    items = obs.items(include_nested=True, leaves_only=True)
    return {"/".join(key if isinstance(key, tuple) else (key,)): value for key, value in items}


def all_finite(*trees: Any) -> bool:
    """Return whether tensors, also nested in TensorDicts and dictionaries, are finite."""
    dicts = (leaves(tree) if isinstance(tree, TensorDict) else tree for tree in trees)
    return all(all_finite(*tree.values()) if isinstance(tree, dict) else tree.isfinite().all() for tree in dicts)


# --- how an episode ends ----------------------------------------------------------------------------------------------


def test_success_and_failure_terminate_time_limit_truncates() -> None:
    env = scripted(success_at=(2, NEVER), fail_at=(NEVER, 3), max_episode_steps=4)
    # env 0 succeeds at its steps 2, 2, ... ; env 1 fails at step 3, then again three steps later
    terminated, truncated = ends(env, 6)
    assert terminated == [[False, False], [True, False], [False, True], [True, False], [False, False], [True, True]]
    assert truncated == [[False, False]] * 6


def test_episode_at_the_limit_is_cut_off_and_not_before() -> None:
    env = scripted(max_episode_steps=3)
    terminated, truncated = ends(env, 6)
    assert terminated == [[False, False]] * 6
    assert truncated == [[False, False], [False, False], [True, True]] * 2


def test_success_at_the_limit_is_both() -> None:
    env = scripted(success_at=(3, NEVER), max_episode_steps=3)
    terminated, truncated = ends(env, 3)
    assert (terminated[-1], truncated[-1]) == ([True, False], [True, True])


def test_task_may_cut_an_episode_off_before_the_limit() -> None:
    _, truncated = ends(scripted(cut_at=(2, NEVER), max_episode_steps=3), 3)
    # env 0 was cut at step 2 and began again: at step 3 only env 1 is at its limit
    assert truncated == [[False, False], [True, False], [False, True]]


def test_success_need_not_terminate() -> None:
    env = scripted(success_at=(2, 2), fail_at=(NEVER, 3), success_terminates=False)
    env.step(torch.zeros(2, 1))
    _, _, terminated, _, info = env.step(torch.zeros(2, 1))
    assert info["success"].tolist() == [True, True]
    assert terminated.tolist() == [False, False]
    assert env.step(torch.zeros(2, 1))[2].tolist() == [False, True]


# --- what a step returns ----------------------------------------------------------------------------------------------


def test_results_have_the_documented_shapes_types_and_keys() -> None:
    env = env_of(PUSH_CUBE, 3)
    env.reset(seed=1)
    obs, reward, terminated, truncated, info = env.step(actions_for(env, 1)[0])
    assert obs.batch_size == (3,)
    assert {name: tuple(value.shape) for name, value in leaves(obs).items()} == {
        "robot/qpos": (3, 8),
        "robot/qvel": (3, 8),
        "robot/qf": (3, 8),
        "robot/ee_pos": (3, 4, 4),
        "object/cube_pos": (3, 4, 4),
        "object/goal_pos": (3, 3),
    }
    assert all(value.dtype == torch.float32 for value in leaves(obs).values())
    assert (reward.shape, reward.dtype) == ((3,), torch.float32)
    assert (terminated.shape, terminated.dtype) == (truncated.shape, truncated.dtype) == ((3,), torch.bool)
    assert {"rewards", "metrics", "success", "fail", "elapsed_steps", "final_obs"} <= set(info)
    assert set(info["rewards"]) == {"reach", "progress", "smooth", "success"}
    assert set(info["metrics"]) == {"distance_to_goal"}
    for value in (*info["rewards"].values(), *info["metrics"].values()):
        assert (value.shape, value.dtype) == ((3,), torch.float32)
    assert info["success"].dtype == info["fail"].dtype == torch.bool
    assert info["elapsed_steps"].tolist() == [1, 1, 1]
    torch.testing.assert_close(reward, torch.stack(list(info["rewards"].values())).sum(dim=0))


@pytest.mark.parametrize("shape", [(6,), (3, 1), (1, 6), (3, 7)])
def test_action_of_another_shape_is_an_error(shape: tuple[int, ...]) -> None:
    env = env_of(PUSH_CUBE, 3)
    env.reset()
    message = rf"actions must have the shape \[3, 6\] .*, got \[{', '.join(map(str, shape))}\]"
    with pytest.raises(ValueError, match=message):
        env.step(torch.zeros(shape))
    with pytest.raises(ValueError, match=r"actions by name lack .*; got mine"):
        env.step({"mine": torch.zeros(3, 6)})


def test_spaces_describe_the_actions_and_observations() -> None:
    env = env_of(PUSH_CUBE, 3)
    obs, _ = env.reset(seed=1)
    assert env.single_action_space.shape == (6,)
    assert env.action_space.shape == (3, 6)
    assert env.single_action_space.low.tolist() == [-1] * 6
    assert env.single_action_space.high.tolist() == [1] * 6
    # qpos, qvel, qf: 8 each; two poses: 16 each; goal: 3
    assert env.flattened_observation_space.shape == (3 * 8 + 2 * 16 + 3,)
    for name, value in leaves(obs).items():
        one: Any = env.single_observation_space
        many: Any = env.observation_space
        for part in name.split("/"):
            one, many = one[part], many[part]
        assert one.shape == value.shape[1:]
        assert many.shape == value.shape


def test_final_obs_is_the_ended_episodes_last_observation() -> None:
    env = scripted(fail_at=(2, NEVER))
    first, _ = env.reset(seed=1)
    env.step(torch.ones(2, 1))
    obs, reward, terminated, _, info = env.step(torch.ones(2, 1))
    assert terminated.tolist() == [True, False]
    assert reward.tolist() == [2.0, 2.0]
    assert info["elapsed_steps"].tolist() == [2, 2]
    assert env.elapsed_steps.tolist() == [0, 2]
    # No event here: every episode starts alike.
    before, now, final = (leaves(each)["robot/qpos"] for each in (first, obs, info["final_obs"]))
    assert torch.equal(now[0], before[0])
    assert not torch.equal(final[0], before[0])
    # Both envs did the same until then; the one that goes on shows where both were.
    assert torch.equal(now[1], final[1])
    assert torch.equal(final[0], final[1])


def test_results_of_a_step_never_change_afterwards() -> None:
    env = env_of(PUSH_CUBE, 2, max_episode_steps=2)
    env.reset(seed=1)
    actions = actions_for(env, 6)
    kept = [env.step(action) for action in actions]
    env.reset(seed=1)
    for old, action in zip(kept, actions, strict=True):
        again = env.step(action)
        for one, two in zip((old[0], old[4]["final_obs"]), (again[0], again[4]["final_obs"]), strict=True):
            assert all(torch.equal(leaves(one)[name], leaves(two)[name]) for name in leaves(one))
        for one, two in zip(old[1:4], again[1:4], strict=True):
            assert torch.equal(torch.as_tensor(one), torch.as_tensor(two))
        assert torch.equal(old[4]["elapsed_steps"], again[4]["elapsed_steps"])


def assert_obs_is_of_the_state(env: EmbodiedEnv, obs: TensorDict) -> None:
    """Compare with what the engine derives from a copy of the state."""
    backend = env.sim.backend
    names = [f"Manipulator/{'hand/' if 'gripper' in name else ''}{name}" for name in env.robot.joint_names]
    for i in range(env.num_envs):
        data = mujoco.MjData(env.sim.model)
        for field in ("qpos", "qvel", "ctrl"):
            getattr(data, field)[:] = getattr(backend, field)[i]
        mujoco.mj_forward(env.sim.model, data)
        cube = obs["object", "cube_pos"][i]
        torch.testing.assert_close(cube[:3, 3], torch.tensor(data.body("cube").xpos).float(), atol=1e-6, rtol=0)
        rotation = torch.tensor(data.body("cube").xmat.reshape(3, 3)).float()
        torch.testing.assert_close(cube[:3, :3], rotation, atol=1e-6, rtol=0)
        flange = data.site("Manipulator/tool0")
        tool = torch.tensor(flange.xpos + 0.16 * flange.xmat.reshape(3, 3)[:, 2]).float()
        torch.testing.assert_close(obs["robot", "ee_pos"][i, :3, 3], tool, atol=3e-6, rtol=0)
        speeds = [float(data.joint(name).qvel[0]) for name in names]
        torch.testing.assert_close(obs["robot", "qvel"][i], torch.tensor(speeds), atol=1e-6, rtol=0)
        efforts = [float(data.qfrc_actuator[env.sim.model.joint(name).dofadr[0]]) for name in names]
        # float32 positions of up to 2 rad (2e-7) times a stiffness of 3e4
        torch.testing.assert_close(obs["robot", "qf"][i], torch.tensor(efforts), atol=2e-2, rtol=0)
        normalised = obs["robot", "qpos"][i, :6] * env.robot.body_data.qpos_limits[0, :6, 1]
        torch.testing.assert_close(normalised, torch.tensor(data.qpos[:6]).float(), atol=2e-6, rtol=0)


def test_observation_is_of_the_present_state() -> None:
    env = env_of(PUSH_CUBE, 2, max_episode_steps=5)
    obs, _ = env.reset(seed=1)
    assert_obs_is_of_the_state(env, obs)
    for action in actions_for(env, 7):
        obs, _, _, truncated, info = env.step(action)
        assert_obs_is_of_the_state(env, obs)
        if not truncated.any():
            assert_obs_is_of_the_state(env, info["final_obs"])
    obs, _ = env.reset(options={"reset_ids": torch.tensor([1])})
    assert_obs_is_of_the_state(env, obs)


# --- resets -----------------------------------------------------------------------------------------------------------


def run(env: BaseEnv, actions: Tensor) -> list[Tensor]:
    results = []
    for action in actions:
        _, reward, terminated, truncated, _ = env.step(action)
        results += [reward, terminated, truncated]
    return results


def test_seed_gives_the_same_run_again_and_another_seed_another() -> None:
    env = env_of(PUSH_CUBE, 2, max_episode_steps=4)
    actions = actions_for(env, 10)
    runs = []
    for seed in (3, 4, 3):
        env.reset(seed=seed)
        results = run(env, actions)
        runs.append([*results, state(env)])
    assert all(torch.equal(a, b) for a, b in zip(runs[0], runs[2], strict=True))
    assert not torch.equal(runs[0][-1], runs[1][-1])


def test_first_reset_without_a_seed_is_that_of_the_configs_seed() -> None:
    one, two = env_of(PUSH_CUBE, 2, seed=7), env_of(PUSH_CUBE, 2)
    one.reset()
    two.reset(seed=7)
    assert torch.equal(state(one), state(two))


def test_eight_envs_are_eight_times_one_env() -> None:
    together = env_of(PUSH_CUBE, 8, max_episode_steps=4)
    together.reset(seed=1)
    actions = actions_for(together, 6)
    rewards = [together.step(action)[1] for action in actions]
    for i in (0, 3, 7):
        alone = env_of(PUSH_CUBE, 1, max_episode_steps=4)
        alone.random = CounterRandom(1, 1, first_id=i)
        alone.reset(seed=1)
        rewards_alone = [alone.step(action[i : i + 1])[1] for action in actions]
        assert torch.equal(state(alone)[0], state(together)[i])
        # Reward terms go through sums whose order may depend on the batch: equal up to rounding.
        torch.testing.assert_close(torch.stack(rewards_alone)[:, 0], torch.stack(rewards)[:, i], atol=1e-5, rtol=1e-5)


def test_partial_reset_touches_only_the_named_envs() -> None:
    env = env_of(PUSH_CUBE, 3)
    env.reset(seed=1)
    run(env, actions_for(env, 3))
    before, goals = state(env), env.goal_pose.clone()  # type: ignore[attr-defined]
    obs, info = env.reset(options={"reset_ids": [1]})
    assert torch.equal(state(env)[[0, 2]], before[[0, 2]])
    assert torch.equal(env.goal_pose[[0, 2]], goals[[0, 2]])  # type: ignore[attr-defined]
    assert not torch.equal(state(env)[1], before[1])
    assert not torch.equal(env.goal_pose[1], goals[1])  # type: ignore[attr-defined]
    assert info["elapsed_steps"].tolist() == [3, 0, 3]
    assert obs.batch_size == (3,)


def test_episodes_of_an_env_do_not_depend_on_who_else_is_reset() -> None:
    one, two = env_of(PUSH_CUBE, 2), env_of(PUSH_CUBE, 2)
    one.reset(seed=1)
    two.reset(seed=1)
    for ids in ([1], [1]):
        one.reset(options={"reset_ids": ids})
    for ids in ([0], [1], [0], [0, 1]):
        two.reset(options={"reset_ids": ids})
    assert torch.equal(state(one)[1], state(two)[1])
    assert not torch.equal(state(one)[0], state(two)[0])


def test_full_reset_aligns_the_members_of_a_group() -> None:
    env = env_of(PUSH_CUBE, 4, group_size=2)
    env.reset(seed=1)
    begin = state(env)
    assert torch.equal(begin[[0, 2]], begin[[1, 3]])
    assert torch.equal(env.goal_pose[[0, 2]], env.goal_pose[[1, 3]])  # type: ignore[attr-defined]
    assert not torch.equal(begin[0], begin[2])
    run(env, actions_for(env, 3))
    for ids in ([0], [0], [3]):
        env.reset(options={"reset_ids": ids})
    assert not torch.equal(state(env)[0], state(env)[1])
    env.reset()
    again = state(env)
    assert torch.equal(again[[0, 2]], again[[1, 3]])
    assert not torch.equal(again[0], begin[0])  # a new episode, and another for each group
    assert not torch.equal(again[0], again[2])
    # Nothing hidden is left of the past: the same actions lead to the same states.
    run(env, actions_for(env, 3)[:, [0, 0, 2, 2]])
    assert torch.equal(state(env)[[0, 2]], state(env)[[1, 3]])


def test_num_envs_must_be_divisible_into_groups() -> None:
    with pytest.raises(ConfigError, match=r"^group_size: 3 environments cannot be divided into groups of 2$"):
        env_of(PUSH_CUBE, 3, group_size=2)


@pytest.mark.parametrize("num_envs", [2, 4])
def test_enumerated_episodes_do_not_depend_on_num_envs(num_envs: int) -> None:
    env = env_of(PUSH_CUBE, num_envs, max_episode_steps=2)
    single = env_of(PUSH_CUBE, 8, max_episode_steps=2)
    single.reset(seed=5, options={"enumerate_episodes": True})
    env.reset(seed=5, options={"enumerate_episodes": True})
    starts = [state(env)]
    for _ in range(8 // num_envs - 1):
        run(env, torch.zeros(2, num_envs, 6))
        starts.append(state(env))
    assert torch.equal(torch.cat(starts), state(single))


class Drawing(EmbodiedEnv):
    """Draws in its hooks, without a stream of its own; the numbers are in the observation."""

    def _init_sim_state(self) -> None:
        super()._init_sim_state()
        self.drawn = torch.zeros(self.num_envs, 2)

    def _initialize_episode(self, env_ids: Tensor) -> None:
        super()._initialize_episode(env_ids)
        self.drawn[env_ids, 0] = self.random.uniform(env_ids, 0.0, 1.0, 1)[:, 0]
        self.drawn[env_ids, 1] = 0.0

    def _update_sim_state(self) -> None:
        super()._update_sim_state()
        self.drawn[:, 1] = self.random.uniform(self.all_env_ids, 0.0, 1.0, 1)[:, 0]

    def _extend_obs(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        noise = self.random.uniform(self.all_env_ids, 0.0, 1.0, 1)
        return super()._extend_obs(obs) | {"drawn": self.drawn.clone(), "noise": noise}


def test_draws_of_hooks_follow_from_seed_episode_and_step() -> None:
    def drawn(num_envs: int) -> Tensor:
        env = Drawing(cart_cfg(num_envs, max_episode_steps=2))
        rounds = []
        for _ in range(2):
            obs, _ = env.reset(seed=5, options={"enumerate_episodes": True})
            seen = [obs]
            for _ in range(8 // num_envs):
                obs, _, _, _, info = env.step(torch.zeros(num_envs, 1))
                seen += [info["final_obs"], obs]
            rounds.append(torch.stack([torch.cat((obs["drawn"], obs["noise"]), dim=1) for obs in seen]))
        assert torch.equal(*rounds)
        return rounds[0]

    # Episodes last 2 steps: with two environments the episodes 2 and 3 begin after 2 steps, which are 4 observations.
    two, four = drawn(2), drawn(4)
    assert torch.equal(torch.cat((two[:4], two[4:8]), dim=1), four[:4])
    for column, distinct in ((0, 4), (1, 1 + 4 * 2), (2, 4 * 3)):
        assert len(four[:4, :, column].unique()) == distinct


def test_step_before_the_first_reset_is_an_error() -> None:
    env = scripted()
    fresh = Scripted(env.cfg)
    with pytest.raises(RuntimeError, match=r"call reset\(\) before step\(\)"):
        fresh.step(torch.zeros(2, 1))


# --- the rollout ------------------------------------------------------------------------------------------------------


def test_steps_write_into_the_slots_of_the_rollout() -> None:
    env = scripted(fail_at=(2, NEVER), max_episode_steps=3)
    flags = {name: torch.zeros(2, 5, dtype=torch.bool) for name in ("done", "terminated", "truncated")}
    numbers = {name: torch.full((2, 5), -1.0) for name in ("reward", "value")}
    rollout = TensorDict(flags | numbers, batch_size=[2, 5])
    env.set_rollout_buffer(rollout)
    for step in range(4):
        assert env.current_rollout_step == step
        env.step(torch.zeros(2, 1))
    # env 0 fails at every second step, env 1 is cut at every third; the reward is the step of the episode
    assert rollout["reward"].tolist() == [[1, 2, 1, 2, -1], [1, 2, 3, 1, -1]]
    assert rollout["terminated"].int().tolist() == [[0, 1, 0, 1, 0], [0, 0, 0, 0, 0]]
    assert rollout["truncated"].int().tolist() == [[0, 0, 0, 0, 0], [0, 0, 1, 0, 0]]
    assert rollout["done"].int().tolist() == [[0, 1, 0, 1, 0], [0, 0, 1, 0, 0]]
    assert (rollout["value"] == -1).all()
    env.set_rollout_buffer(rollout)
    assert env.current_rollout_step == 0
    env.step(torch.zeros(2, 1))
    assert rollout["reward"][:, 0].tolist() == [1.0, 2.0]


# --- physics that becomes invalid -------------------------------------------------------------------------------------


def fling(env: EmbodiedEnv, action: Tensor) -> None:
    env.sim.get_rigid_object("cube").set_velocity(torch.full((1, 6), 1e15), torch.tensor([0]))


def give_no_number(env: EmbodiedEnv, action: Tensor) -> None:
    action[0, 2] = float("nan")


@pytest.mark.parametrize("spoil", [fling, give_no_number])
def test_divergence_ends_that_episode_alone_and_is_counted(
    spoil: Callable[[EmbodiedEnv, Tensor], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    env, other = env_of(PUSH_CUBE, 3), env_of(PUSH_CUBE, 3)
    env.reset(seed=1)
    other.reset(seed=1)
    actions = actions_for(env, 4)
    capsys.readouterr()
    for step, action in enumerate(actions):
        spoilt = action.clone()
        if step == 1:
            spoil(env, spoilt)
        obs, reward, terminated, truncated, info = env.step(spoilt)
        expected = other.step(action)
        assert terminated.tolist() == [step == 1, False, False]
        assert not truncated.any()
        assert all_finite(obs, reward, info["rewards"], info["metrics"], info["final_obs"])
        assert torch.equal(reward[1:], expected[1][1:])
        assert torch.equal(state(env)[1:], state(other)[1:])
        if step == 1:
            assert reward[0].item() == 0.0
            assert not info["success"][0]
            assert all(value[0].item() == 0.0 for value in info["rewards"].values())
            assert "environments [0]" in capsys.readouterr().err
    assert env.divergences.count == 1
    assert other.divergences.count == 0
    assert all_finite(state(env))
    assert list(tmp_path.iterdir()) == []


# --- config -----------------------------------------------------------------------------------------------------------


def test_control_step_is_as_many_substeps_as_the_config_says() -> None:
    heights = []
    box = {**BOX, "init_pos": [2.0, 0.0, 3.0], "attrs": {"static_friction": 0.5, "linear_damping": 0.0}}
    for substeps in (1, 4):
        env = EmbodiedEnv(replace(cart_cfg(1, rigid_object=[box]), sim_steps_per_control=substeps))
        env.reset()
        env.step(torch.zeros(1, 1))
        heights.append(env.sim.get_rigid_object("box").pos[0, 2].item())
    # 3 - 9.81 * 0.01^2 (1 + ... + n)
    assert heights == pytest.approx([3 - 9.81e-4, 3 - 9.81e-4 * 10], abs=1e-6)
