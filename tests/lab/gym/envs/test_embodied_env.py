from __future__ import annotations

from typing import Any

import pytest
import torch

from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.hooks import checked_task_state
from embodichain.utils import ConfigError
from embodichain.utils.configclass import replace
from tests.lab.scenes import BOX, cart_cfg


def test_extensions_become_attributes_before_the_scene_is_made() -> None:
    env = EmbodiedEnv(cart_cfg(1, {"extensions": {"success_threshold": 0.07, "names": ["a"]}}))
    assert vars(env)["success_threshold"] == 0.07
    assert vars(env)["names"] == ["a"]


def test_background_is_static_whatever_its_config_says() -> None:
    table = {**BOX, "uid": "table", "init_pos": [2.0, 0.0, 3.0]}
    env = EmbodiedEnv(cart_cfg(1, background=[table]))
    env.reset()
    env.step(torch.zeros(1, 1))
    assert env.sim.get_rigid_object("table").pos.tolist() == [[2.0, 0.0, 3.0]]


def test_base_observation_is_the_robots_state() -> None:
    env = EmbodiedEnv(cart_cfg(2))
    obs, _ = env.reset()
    torch.testing.assert_close(obs["robot", "qpos"], torch.tensor([[-0.2, 0.07]] * 2))
    assert set(obs["robot"].keys()) == {"qpos", "qvel", "qf"}
    assert torch.equal(obs["robot", "qf"], env.robot.get_qf())


@pytest.mark.parametrize(
    ("chosen", "joints"),
    [
        ({}, [0]),  # there is an arm
        ({"control_parts": ["hand"]}, [1]),
        ({"control_parts": ["hand", "arm"]}, [1, 0]),
        ({"active_joint_ids": [1]}, [1]),
    ],
)
def test_actions_move_the_chosen_parts_or_joints(chosen: dict[str, Any], joints: list[int]) -> None:
    env = EmbodiedEnv(cart_cfg(2, chosen))
    assert env.active_joint_ids == joints
    env.reset()
    env.step(torch.ones(2, len(joints)))
    moved = env.robot.get_qpos_target() - torch.tensor([[-0.2, 0.07]])  # 0.1, the action's scale
    expected = torch.zeros(2, 2)
    expected[:, joints] = 0.1
    torch.testing.assert_close(moved, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"control_parts": ["amr"]}, r"env\.control_parts: unknown control part 'amr'\. Did you mean 'arm'"),
        ({"control_parts": []}, "env.control_parts: at least one is needed"),
        ({"active_joint_ids": [2]}, r"active_joint_ids: must be joints with drives, .*: 0 \(slider_to_cart\), 1 \("),
        ({"active_joint_ids": [0, 0]}, "each once"),
        ({"active_joint_ids": [0], "control_parts": ["arm"]}, "not together with control_parts"),
    ],
)
def test_part_or_joint_that_is_not_there_is_refused(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EmbodiedEnv(cart_cfg(2, chosen))


def test_environment_without_a_robot_is_refused() -> None:
    with pytest.raises(ConfigError, match="robot: required, but missing"):
        EmbodiedEnv(EmbodiedEnvCfg())


def test_writing_into_results_does_not_change_the_next_step() -> None:
    env = EmbodiedEnv(cart_cfg(2))
    env.reset()
    _, _, _, truncated, info = env.step(torch.zeros(2, 1))
    truncated |= True
    info["fail"] |= True
    _, _, terminated, truncated, _ = env.step(torch.zeros(2, 1))
    assert not terminated.any()
    assert not truncated.any()


YES = torch.ones(2, dtype=torch.bool)


class Lifting:
    """A task's name."""


def test_what_a_task_returns_is_passed_on() -> None:
    state = (YES, ~YES, {"height": torch.zeros(2)})
    assert checked_task_state(state, 2, Lifting) == state


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (None, "NoneType"),
        ((YES, YES), "tuple"),
        ((YES.float(), YES, {}), "a tensor [2] as success"),
        ((YES, YES[:1], {}), "a tensor [1] as fail"),
        ((YES, YES, {"a": torch.zeros(2), "b": torch.zeros(())}), "a tensor [] as b"),
        ((YES, YES, {"a": 3}), "int as a"),
    ],
)
def test_anything_else_is_named(value: Any, got: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checked_task_state(value, 2, Lifting)
    assert str(caught.value) == (
        "Lifting.compute_task_state must return (success, fail, metrics): two bool tensors [N] = [2] and a dict of "
        f"tensors [N]. Got {got}"
    )


class Balance(EmbodiedEnv):
    """A task with a success, which none of its episodes reaches."""

    def compute_task_state(self, **kwargs: Any) -> Any:
        return self.elapsed_steps > 1000, self._never, {}


@pytest.mark.parametrize(("task", "knows"), [(EmbodiedEnv, False), (Balance, True)])
def test_task_says_whether_it_knows_success(task: type[EmbodiedEnv], knows: bool) -> None:
    env = task(cart_cfg(2))
    env.reset()
    assert env.knows_success() is knows
    env.step(torch.zeros(2, 1))
    assert env.knows_success() is knows


class Calls(EmbodiedEnv):
    """Lists the calls of its hooks, with the elapsed steps; its episodes have two."""

    def _init_sim_state(self) -> None:
        super()._init_sim_state()
        self.calls: list[tuple[str, list[int]]] = []

    def _update_sim_state(self) -> None:
        super()._update_sim_state()
        self.calls.append(("update", self.elapsed_steps.tolist()))

    def compute_task_state(self, **kwargs: Any) -> Any:
        self.calls.append(("task state", self.elapsed_steps.tolist()))
        return super().compute_task_state(**kwargs)


def test_hooks_run_once_in_a_step() -> None:
    """So a counter belongs in ``_update_sim_state``, as docs/extending.md says."""
    env = Calls(replace(cart_cfg(), num_envs=1, max_episode_steps=2))
    env.calls = []
    env.reset(seed=1)
    for _ in range(3):
        env.step(torch.zeros(1, env.action_manager.total_action_dim))
    steps = [(name, [count]) for count in (1, 2, 1) for name in ("update", "task state")]
    assert env.calls == [("task state", [0]), *steps]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("_extend_rewards", "_extend_reward"),
        ("_prepare_scence", "_prepare_scene"),
        ("compute_task_states", "compute_task_state"),
        ("_get_reward", "get_reward"),
        ("_initialise_episode", "_initialize_episode"),
    ],
)
def test_misspelt_hook_is_named(name: str, meant: str, caplog: pytest.LogCaptureFixture) -> None:
    task = type("Lift", (EmbodiedEnv,), {name: lambda self: None})
    line = f"Lift.{name}: no hook has this name, so only your own code can call it. Did you mean '{meant}'?"
    assert caplog.messages == [line]
    caplog.clear()
    type("LiftHigher", (task,), {name: lambda self: None})  # said once, of the class that brought it in
    assert not caplog.messages


def test_own_methods_and_overridden_ones_are_not_taken_for_hooks(caplog: pytest.LogCaptureFixture) -> None:
    class Lift(EmbodiedEnv):
        max_reward = 1.0

        def _extend_obs(self, obs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return obs

        def _gripper_state(self) -> None: ...

        def reach_reward(self) -> None: ...

    assert Lift.max_reward == 1.0
    assert not caplog.messages
