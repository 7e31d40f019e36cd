from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.base_env import checked_task_state
from embodichain.utils import ConfigError, replace
from embodichain.utils.observations import MirrorMap, flatten_dict_observation
from embodichain.utils.utility import load_config_file
from tests.lab.scenes import BOX, cart_cfg, env_of


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
    ("name", "meant"), [("_extend_rewards", "_extend_reward"), ("_initialise_episode", "_initialize_episode")]
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
            return super()._extend_obs(obs)

        def _gripper_state(self) -> None: ...

        def reach_reward(self) -> None: ...

    assert Lift.max_reward == 1.0
    assert not caplog.messages


def test_hook_without_super_is_named(caplog: pytest.LogCaptureFixture) -> None:
    class Lift(EmbodiedEnv):
        def _initialize_episode(self, env_ids: Tensor) -> None:
            self.lifted = True

    class LiftHigher(Lift):  # calls Lift's, which is what it can do
        def _initialize_episode(self, env_ids: Tensor) -> None:
            super()._initialize_episode(env_ids)

        def _extend_obs(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
            return EmbodiedEnv._extend_obs(self, obs)

    (line,) = caplog.messages
    assert line.endswith(
        "Lift._initialize_episode does not call super()._initialize_episode(): the config's part of it is lost"
    )


class Kept(EmbodiedEnv):
    """Counts its steps in buffers, which a reset changes in place, and succeeds at the third."""

    def _init_sim_state(self) -> None:
        super()._init_sim_state()
        self.ok = torch.zeros(self.num_envs, dtype=torch.bool)
        self.steps = torch.zeros(self.num_envs)

    def _update_sim_state(self) -> None:
        super()._update_sim_state()
        self.steps += 1
        self.ok |= self.steps >= 3

    def _initialize_episode(self, env_ids: Tensor) -> None:
        super()._initialize_episode(env_ids)
        self.ok[env_ids], self.steps[env_ids] = False, 0.0

    def _extend_obs(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        return super()._extend_obs(obs) | {"task/steps": self.steps}

    def compute_task_state(self, **kwargs: Any) -> Any:
        return self.ok, self._never, {"steps": self.steps}


def steps_of(env: Any) -> Tensor:
    return env.steps


def test_buffers_of_a_task_are_read_before_its_reset() -> None:
    terms = {"mine": {"func": steps_of, "mode": "add", "name": "task/mine"}}
    env = Kept(cart_cfg(2, {"observations": terms}))
    first, _ = env.reset(seed=1)
    for _ in range(3):
        _, _, terminated, _, info = env.step(torch.zeros(2, env.action_manager.total_action_dim))
    assert terminated.all()
    assert env.steps.tolist() == first["task", "steps"].tolist() == first["task", "mine"].tolist() == [0, 0]
    assert info["success"].all()
    assert info["metrics"]["steps"].tolist() == [3, 3]
    assert info["final_obs"]["task", "steps"].tolist() == info["final_obs"]["task", "mine"].tolist() == [3, 3]


REPOSITORY = Path(__file__).resolve().parents[4]
GO2, GO2_FLAT = (
    REPOSITORY / name for name in ("embodichain/lab/sim/assets/go2.xml", "configs/agents/rl/go2_flat/gym_config.json")
)
VECTOR, PSEUDOVECTOR = torch.tensor([1.0, -1.0, 1.0]), torch.tensor([-1.0, 1.0, -1.0])
KEEP, TURN = {"permutation": [0, 1], "signs": [1, 1]}, {"permutation": [1, 0], "signs": [-1, -1]}


def cart(observations: dict[str, Any], actions: dict[str, Any]) -> EmbodiedEnv:
    return EmbodiedEnv(cart_cfg(2, {"symmetry": {"observations": observations, "actions": actions}}))


def mirrored_state(qpos: Tensor, qvel: Tensor, mirror_map: MirrorMap) -> tuple[Tensor, Tensor]:
    """Return the mirror image of a free base's and its joints' state; a quaternion's vector part is a pseudovector."""
    base = qpos[:, :3] * VECTOR, qpos[:, 3:4], qpos[:, 4:7] * PSEUDOVECTOR
    joints, rates = mirror_map.action(qpos[:, 7:]), mirror_map.action(qvel[:, 6:])
    return torch.cat((*base, joints), 1), torch.cat((qvel[:, :3] * VECTOR, qvel[:, 3:6] * PSEUDOVECTOR, rates), 1)


def test_go2_and_its_task_are_symmetric(tmp_path: Path) -> None:
    model, inertia = GO2.read_text(encoding="utf-8"), "0.00012166 0.0014849 -3.12e-05"
    assert inertia in model
    (tmp_path / "go2.xml").write_text(model.replace(inertia, "0 0.0014849 0"), encoding="utf-8")
    data = load_config_file(GO2_FLAT)
    data.pop("$schema", None)
    data["robot"]["fpath"] = str(tmp_path / "go2.xml")
    data["env"]["events"] = {}
    env = env_of(data, 2)
    mirror_map, backend = env.mirror_map(), env.sim.backend
    env.reset()
    command = env.command_manager.get_command("base_velocity")
    command[1] = command[0] * torch.tensor([1.0, -1.0, -1.0])
    generator = torch.Generator().manual_seed(0)
    qpos, qvel = backend.qpos[:1].clone(), torch.randn(1, 18, generator=generator) * 0.3
    qpos[:, 7:] += torch.randn(1, 12, generator=generator) * 0.1
    images = mirrored_state(qpos, qvel, mirror_map)
    backend.write("qpos", slice(0, 19), torch.cat((qpos, images[0])), env.all_env_ids)
    backend.write("qvel", slice(0, 18), torch.cat((qvel, images[1])), env.all_env_ids)
    is_clock = torch.arange(mirror_map.obs.size) >= mirror_map.obs.size - 2  # both clocks run alike here
    for _ in range(10):
        action = torch.rand(1, 12, generator=generator) * 2 - 1
        obs, _, _, _, info = env.step(torch.cat((action, mirror_map.action(action))))
        flat = flatten_dict_observation(obs)
        difference = (mirror_map.obs(flat[:1]) - flat[1:]).masked_fill(is_clock, 0.0)
        assert difference.abs().max() < 1e-5
        for name in info["rewards"].keys() - {"gait"}:
            torch.testing.assert_close(*info["rewards"][name], atol=1e-5, rtol=0)


def test_entries_and_action_terms_are_joined_in_their_order() -> None:
    entries = {"robot/qf": KEEP, "robot/qpos": TURN, "robot/qvel": KEEP}
    mirror_map = cart(entries, {"move": {"permutation": [0], "signs": [-1]}}).mirror_map()
    assert mirror_map.obs(torch.arange(1.0, 7.0)).tolist() == [1, 2, -4, -3, 5, 6]
    assert mirror_map.action(torch.tensor([2.0])).tolist() == [-2]


def test_every_mistake_of_the_block_is_one_line() -> None:
    entries = {"robot/qpos": {"permutation": [0], "signs": [1]}, "robot/qvell": KEEP, "robot/qvel": KEEP}
    with pytest.raises(ConfigError) as error:
        cart(entries, {"move": {"permutation": [0], "signs": [-1]}})
    assert str(error.value).splitlines() == [
        "env.symmetry.observations: unknown name 'robot/qvell'. Did you mean 'robot/qvel'? "
        "Known: robot/qf, robot/qpos, robot/qvel",
        "env.symmetry.observations.robot/qf: required, but missing",
        "env.symmetry.observations.robot/qpos: has 1 components, needed are 2",
    ]


def test_environment_without_the_block_has_no_map() -> None:
    with pytest.raises(ConfigError, match=r"^no mirror map: the config of EmbodiedEnv has no 'env\.symmetry'$"):
        EmbodiedEnv(cart_cfg(2, {})).mirror_map()
