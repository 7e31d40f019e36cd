"""Terms and tasks written with EmbodiChain's signatures. Shapes: N = 2 environments, J = 2 joints."""

from collections.abc import Sequence
from typing import Any, Union

import pytest
import torch
from tensordict import TensorDict

from embodichain.lab.gym import registry
from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.managers import (
    ActionTerm,
    ActionTermCfg,
    EventCfg,
    Functor,
    FunctorCfg,
    ObservationCfg,
    RewardCfg,
    SceneEntityCfg,
)
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.lab.gym.registry import register_env
from embodichain.lab.sim.types import EnvAction, EnvObs
from embodichain.utils import ConfigError, replace
from tests.lab.scenes import BOX, CART, cart_cfg

BOX_ENTITY = {"uid": "box"}


def height(env: EmbodiedEnv, obs: EnvObs, entity_cfg: SceneEntityCfg, scale: float = 1.0) -> torch.Tensor:
    return env.sim.get_rigid_object(entity_cfg.uid).pos[:, 2] * scale


def height_unannotated(env, obs, entity_cfg=None):
    return env.sim.get_rigid_object(entity_cfg.uid).pos[:, 2]


def speed_of(env: EmbodiedEnv, so_far: EnvObs) -> torch.Tensor:
    return so_far["robot"]["qvel"].norm(dim=1)


class Calls(Functor):
    """Counts an episode's calls, as its base offers it."""

    def __init__(self, cfg: FunctorCfg, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        self._count = torch.zeros(self.num_envs, device=self.device)
        assert self._env is env

    def reset(self, env_ids: Sequence[int] | None = None) -> None:  # type: ignore[override]
        if env_ids is None:
            env_ids = slice(None)  # type: ignore[assignment]
        self._count[env_ids] = 0.0

    def __call__(self, env: EmbodiedEnv, obs: EnvObs, step: float = 1.0) -> torch.Tensor:
        self._count += step
        return self._count.clone()


def observed(func: Any, num_envs: int = 2, **params: Any) -> TensorDict:
    terms = {"new": {"func": func, "mode": "add", "name": "task/new", "params": params}}
    env = EmbodiedEnv(cart_cfg(num_envs, {"observations": terms}, rigid_object=[BOX]))
    env.reset()
    obs: TensorDict = env.step(torch.ones(num_envs, 1))[0]
    return obs


def test_entries_are_made_from_the_observation_so_far() -> None:
    for func in (height, height_unannotated):
        found = observed(func, entity_cfg=BOX_ENTITY)["task", "new"]
        torch.testing.assert_close(found, torch.full((2,), 0.05), atol=2e-3, rtol=0)
    assert torch.equal(observed(height, entity_cfg=BOX_ENTITY, scale=0.0)["task", "new"], torch.zeros(2))
    obs = observed(speed_of)
    assert torch.equal(obs["task", "new"], obs["robot", "qvel"].norm(dim=1))
    assert (obs["task", "new"] > 0).all()


def test_functor_of_the_observation_is_reset() -> None:
    env = EmbodiedEnv(cart_cfg(2, {"observations": {"calls": {"func": Calls}}}))
    env.reset()
    env.step(torch.zeros(2, 1))
    obs, _ = env.reset(options={"reset_ids": [1]})
    assert obs["calls"].tolist() == [2.0, 1.0]


def test_obs_is_a_parameter_where_the_config_gives_it() -> None:
    def constant(env: EmbodiedEnv, obs: float) -> torch.Tensor:
        return torch.full((env.num_envs,), obs)

    assert observed(constant, obs=3.0)["task", "new"].tolist() == [3.0, 3.0]


def late(env: EmbodiedEnv, scale: float, obs: EnvObs) -> torch.Tensor: ...  # type: ignore[empty-body]


def odd(env, whatever): ...


def of_nothing() -> torch.Tensor: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("func", "params", "message"),
    [
        (late, {"scale": 1.0}, r"^env\.observations\.new\.func: 'late' takes obs, but is only given env, or"),
        (odd, {}, r"'odd' takes 'whatever' after env: .* \(func\(env, \*\*params\), or func\(env, obs, \*\*par"),
        (of_nothing, {}, r"'of_nothing' does not take env, or env and obs, which it is given here$"),
        (height, {"entity_cfg": {"uid": "bxo"}}, r"params\.entity_cfg\.uid: no 'bxo' in the scene\. Did you"),
    ],
)  # fmt: skip
def test_other_signatures_are_refused_in_a_line(func: Any, params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        observed(func, **params)


def above(env: EmbodiedEnv, obs: dict, action: EnvAction, info: dict, entity_cfg: SceneEntityCfg = None):  # type: ignore[assignment]
    return env.sim.get_rigid_object(entity_cfg.uid).get_local_pose(to_matrix=True)[:, 2, 3]


def lift(env: EmbodiedEnv, env_ids: Union[torch.Tensor, None], entity_cfg: SceneEntityCfg, z: float = 1.0) -> None:  # noqa: UP007
    body = env.sim.get_rigid_object(entity_cfg.uid)
    pose = body.get_local_pose(to_matrix=False)[env_ids]
    pose[:, 2] = z
    body.set_local_pose(pose, env_ids=env_ids)


def test_rewards_and_events_run_from_config_and_python() -> None:
    terms: dict[str, Any] = {
        "rewards": {"above": {"func": above, "weight": 2.0, "params": {"entity_cfg": BOX_ENTITY}}},
        "events": {"lift": {"func": lift, "params": {"entity_cfg": BOX_ENTITY, "z": 3.0}}},
    }
    box = SceneEntityCfg(uid="box")
    made: dict[str, Any] = {
        "rewards": {"above": RewardCfg(func=above, weight=2.0, params={"entity_cfg": box})},
        "events": {"lift": EventCfg(func=lift, mode="reset", params={"entity_cfg": box, "z": 3.0})},
        "observations": {"height": ObservationCfg(func=height, mode="add", params={"entity_cfg": box})},
    }
    cfg = cart_cfg(2, rigid_object=[BOX])
    for env in (EmbodiedEnv(cart_cfg(2, terms, rigid_object=[BOX])), EmbodiedEnv(replace(cfg, **made))):
        env.reset()
        reward = env.step(torch.zeros(2, 1))[1]
        torch.testing.assert_close(reward, torch.full((2,), 6.0), atol=0.1, rtol=0)  # 2 * 3 m, falling


class Shift(ActionTerm):
    """Targets are the present positions and the action."""

    def __init__(self, cfg: ActionTermCfg, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        self._scale = cfg.params.get("scale", 1.0)
        self.seen_envs = (self.num_envs, self.device)

    @property
    def input_key(self) -> str:
        return "qpos"

    @property
    def action_dim(self) -> int:
        return len(self._env.active_joint_ids)

    def process_action(self, action: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return action * self._scale + self._env.robot.get_qpos()


class Named(Shift):
    """By name, and whether it worked."""

    def process_action(self, action: torch.Tensor) -> TensorDict:
        worked = torch.ones(len(action), dtype=torch.bool)
        return TensorDict({"qpos": super().process_action(action), "ik_success": worked}, batch_size=[len(action)])


class Speed(Shift):
    """Velocities."""

    input_key = "qvel"

    def process_action(self, action: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return action * self._scale


class Unknown(Shift):
    """No kind that there is."""

    input_key = "torque"


def acting(func: type, **env: Any) -> EmbodiedEnv:
    actions = {"term": {"func": func, "params": {"scale": 0.5}}}
    env_with = EmbodiedEnv(cart_cfg(2, {"actions": actions, **env}))
    env_with.reset()
    return env_with


@pytest.mark.parametrize("func", [Shift, Named])
def test_action_term_returns_targets_as_a_tensor_or_by_name(func: type) -> None:
    env = acting(func, control_parts=["arm", "hand"])
    assert env.action_space.shape == (2, 2)
    before = env.robot.get_qpos().clone()
    info = env.step(torch.tensor([[1.0, -1.0], [0.0, 0.5]]))[4]
    moved = env.robot.get_qpos_target() - before
    torch.testing.assert_close(moved, torch.tensor([[0.5, -0.5], [0.0, 0.25]]))
    assert (func is Named) == ("ik_success" in info["metrics"])


def test_targets_of_all_the_robots_joints_move_the_terms() -> None:
    env = acting(Shift)  # the arm alone: action [N, 1] + positions [N, 2]
    before = env.robot.get_qpos_target().clone()
    env.step(torch.ones(2, 1))
    moved = env.robot.get_qpos_target() - before
    torch.testing.assert_close(moved, torch.tensor([[0.5, 0.0]] * 2))


def test_input_key_says_which_targets_they_are() -> None:
    env = acting(Speed)
    env.step(torch.ones(2, 1))
    assert env.action_manager.process_action(torch.ones(2, 1))["qvel"].tolist() == [[0.5], [0.5]]
    assert env.action_manager.terms["term"].kind == "qvel"


def test_action_term_of_another_kind_is_refused() -> None:
    message = r"^env\.actions\.term: Unknown\.input_key is 'torque', not one of \['qpos', 'qvel', 'qf', 'eef_pose'\]$"
    with pytest.raises(ConfigError, match=message):
        acting(Unknown)


# --- a task ---


class _Balance(EmbodiedEnv):
    """Written as CartPole's is there."""

    def __init__(self, cfg: EmbodiedEnvCfg = None, **kwargs: Any) -> None:  # type: ignore[assignment]
        super().__init__(cfg, **kwargs)

    def get_reward(self, obs: Any, action: Any, info: Any) -> torch.Tensor:
        return 1.0 - self.robot.get_qpos(name="hand").reshape(-1).abs() / torch.pi

    def compute_task_state(self, **kwargs: Any) -> Any:
        angle = self.robot.get_qpos(name="hand").reshape(-1).abs()
        assert self.max_episode_steps is not None
        is_success = torch.logical_and(self._elapsed_steps >= self.max_episode_steps - 1, angle < 3.0)
        is_fail = torch.zeros(self.num_envs, device=self.device, dtype=torch.bool)
        return is_success, is_fail, {"distance_to_goal": angle}

    def check_truncated(self, obs: EnvObs, info: dict[str, Any]) -> torch.Tensor:
        return self.robot.get_qpos(name="hand").reshape(-1).abs() > torch.pi * 0.5


def test_task_of_the_other_library_is_built_by_its_name_and_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))  # and take the task away again
    register_env("TheirBalanceRL", max_episode_steps=3, override=True)(_Balance)
    actions = {"move": {"func": "DeltaQposTerm", "params": {"scale": 0.1}}}
    data = {"id": "TheirBalanceRL", "num_envs": 2, "robot": CART, "env": {"actions": actions}}
    env = build_env("TheirBalanceRL", base_env_cfg=config_to_cfg(data))
    env.reset()
    ends = [env.step(torch.zeros(2, 1))[2].tolist() for _ in range(2)]
    assert ends == [[False, False], [True, True]]  # 3 - 1 steps
