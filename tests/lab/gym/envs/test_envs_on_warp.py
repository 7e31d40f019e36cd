"""Environments whose host runs ahead of the physics. Shapes: N environments, O observation size."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.agents.rl.buffer import allocate_rollout
from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.cfg import EventCfg
from embodichain.lab.gym.envs.tasks.rl import PushCubeEnv
from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from embodichain.lab.sim.rows import row_numbers
from embodichain.utils import replace
from embodichain.utils.observations import flatten_dict_observation
from embodichain.utils.utility import load_json
from tests.lab.gym.envs.managers.randomization.test_physics import ALL
from tests.lab.legs import legs_env
from tests.lab.scenes import actions_for
from tests.lab.warp_scenes import CART, CONFIGS, ENGINES, PUSH, env_on, needs_warp
from tests.no_sync import no_host_sync, work_as_on_a_device

pytestmark = [needs_warp, pytest.mark.e2e]

N = 4


def event(func: str, interval_step: Any = None, **params: Any) -> dict[str, Any]:
    when = {"mode": "reset"} if interval_step is None else {"mode": "interval", "interval_step": interval_step}
    return {"func": func, "params": params, **when}


CUBE, PLACES = {"uid": "cube"}, [[-0.9, -0.4, 0.0], [-0.6, 0.4, 0.0]]
RANDOMISED: dict[str, Any] = {
    "mass": event("randomize_rigid_object_mass", entity_cfg=CUBE, mass_range=[0.5, 2.0]),
    "friction": event("randomize_rigid_object_friction", entity_cfg=CUBE, friction_range=[0.3, 1.0]),
    "drives": event("randomize_joint_drive", entity_cfg={"uid": "Manipulator"}, stiffness_range=[0.8, 1.2]),
    "moves": event("randomize_target_pose", 3, position_range=PLACES, store_key="goal_pose"),
    "moves at drawn times": event("randomize_target_pose", [1, 3], position_range=PLACES, store_key="other_pose"),
}


def push(**cfg: Any) -> EmbodiedEnv:
    shipped = load_json(CONFIGS / PUSH)["env"]["events"]
    return env_on("warp", PUSH, N, env={"events": shipped | RANDOMISED}, max_episode_steps=5, **cfg)


@contextmanager
def by_number(mask: Tensor) -> Iterator[Tensor]:
    """``BaseEnv.choose`` as it is where the host may read the mask."""
    yield mask.nonzero().squeeze(1)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[EmbodiedEnv, EmbodiedEnv]]:
    """Two environments, of which the second is told by number which environments begin an episode."""
    by_mask, by_ids = push(), push()
    by_ids.choose = by_number  # type: ignore[method-assign]
    yield by_mask, by_ids
    by_mask.close()
    by_ids.close()


def row_of(env: EmbodiedEnv, obs: Any) -> Tensor:
    return torch.cat((flatten_dict_observation(obs), env.sim.backend.qpos, env.sim.backend.ctrl), dim=1)


@pytest.mark.e2e
def test_resets_by_mask_are_those_by_number(pair: tuple[EmbodiedEnv, EmbodiedEnv]) -> None:
    for env in pair:
        env.reset(seed=5)
        # so that episodes end at different times
        env.elapsed_steps += torch.tensor([0, 1, 2, 2])
    for action in actions_for(pair[0], 14):
        (one, reward, *ends, info), (two, other, *others, noted) = (env.step(action) for env in pair)
        assert torch.equal(row_of(pair[0], one), row_of(pair[1], two))
        assert torch.equal(reward, other)
        assert all(torch.equal(a, b) for a, b in zip(ends, others, strict=True))
        assert info["metrics"].keys() == noted["metrics"].keys()
        for name in ("body_mass", "geom_friction", "actuator_gainprm"):
            assert torch.equal(*(env.sim.backend.read_model(name) for env in pair))
        assert torch.equal(*(env.random.episode for env in pair))
        assert torch.equal(*(env.goal_pose for env in pair))  # type: ignore[attr-defined]
        assert torch.equal(*(getattr(env, "other_pose", torch.zeros(0)) for env in pair))  # after the first call
    assert pair[0].random.episode.tolist() == [2, 3, 3, 3]  # ends at 5, 10; 4, 9, 14; 3, 8, 13 twice


def assert_never_waits(env: EmbodiedEnv, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    work_as_on_a_device(monkeypatch)
    env.reset(seed=1)
    actions = actions_for(env, steps)
    for action in actions:  # what is sent to the device once, is there then
        env.step(action)
    with no_host_sync(monkeypatch):
        for action in actions:
            env.step(action)


def test_step_of_the_environment_never_waits_for_the_device(
    pair: tuple[EmbodiedEnv, EmbodiedEnv], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_never_waits(pair[0], 6, monkeypatch)  # episodes of 5 steps: some end


def test_divergence_ends_the_episode_and_is_told_once_a_rollout(
    pair: tuple[EmbodiedEnv, EmbodiedEnv], caplog: pytest.LogCaptureFixture
) -> None:
    env = pair[0]
    env.reset(seed=1)
    actions = actions_for(env, 2)
    _, _, terminated, _, info = env.step(actions[0])
    assert not terminated.any()
    assert not info["diverged"].any()
    actions[1, 2] = float("nan")
    obs, reward, terminated, _, info = env.step(actions[1])
    assert terminated.tolist() == [False, False, True, False]
    assert info["diverged"].tolist() == [False, False, True, False]
    assert float(reward[2]) == 0.0
    assert flatten_dict_observation(obs).isfinite().all()
    assert flatten_dict_observation(info["final_obs"]).isfinite().all()
    assert env.elapsed_steps.tolist() == [2, 2, 0, 2]
    assert caplog.messages == []
    rollout = allocate_rollout(N, 2, 1, 1, "cpu")
    env.set_rollout_buffer(rollout)
    env._slots = iter(())
    assert caplog.messages == [
        "physics or action invalid in some environments: their episodes end and reset (1 so far)"
    ]


def count_resets(env: EmbodiedEnv, env_ids: Tensor) -> None:
    """A user's event that counts environments: it asks for their numbers."""
    env.counted = getattr(env, "counted", 0) + len(row_numbers(env_ids))  # type: ignore[attr-defined]


def mark_resets(env: EmbodiedEnv, env_ids: Tensor) -> None:
    """A user's event that keeps rows in a dictionary."""
    if not hasattr(env, "marks"):
        env.marks = {"resets": torch.zeros(env.num_envs)}  # type: ignore[attr-defined]
    env.marks["resets"][env_ids] += 1  # type: ignore[attr-defined]


@pytest.mark.e2e
def test_events_of_the_guide_run_by_mask(caplog: pytest.LogCaptureFixture) -> None:
    events = {"count": EventCfg(func=count_resets, mode="reset"), "mark": EventCfg(func=mark_resets, mode="reset")}
    env = env_on("warp", CART, N, max_episode_steps=2, events=events)
    env.reset(seed=1)
    env.counted = 0  # type: ignore[attr-defined]
    env.marks["resets"].zero_()  # type: ignore[attr-defined]
    env.elapsed_steps += torch.tensor([0, 0, 0, 1])
    for action in actions_for(env, 2):
        env.step(action)
    # env 3 after a step, the others after two
    assert env.counted == 4  # type: ignore[attr-defined]
    assert env.marks["resets"].tolist() == [1.0] * 4  # type: ignore[attr-defined]
    assert not caplog.messages
    env.close()


def read_resets(env: EmbodiedEnv, env_ids: Tensor) -> None:
    """A user's event that reads numbers without asking for them."""
    for i in env_ids.tolist():
        assert i >= 0


def test_event_that_reads_row_numbers_without_asking() -> None:
    with pytest.raises(RuntimeError, match=r"Write `env_ids = row_numbers\(env_ids\)` first"):
        env_on("warp", CART, N, events={"read": EventCfg(func=read_resets, mode="reset")})


class Guided(PushCubeEnv):
    """A task with an attribute of its own, set as docs/extending.md and the task template set theirs."""

    def _init_sim_state(self) -> None:
        self.height = torch.zeros(self.num_envs, device=self.device)
        super()._init_sim_state()

    def _initialize_episode(self, env_ids: Tensor) -> None:
        super()._initialize_episode(env_ids)
        self.sim.get_marker("goal").set_pos(self.goal_pose[env_ids, :3, 3], env_ids)
        self.height[env_ids] = 1.0


@pytest.mark.e2e
def test_task_and_terms_of_the_guide_never_wait_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = config_to_cfg(load_json(CONFIGS / PUSH))
    sim_cfg = replace(typed.sim_cfg, sim_device="warp:cpu", num_threads=1)
    env = Guided(replace(typed, num_envs=N, sim_cfg=sim_cfg, max_episode_steps=3))
    env.add_events({"mark": EventCfg(func=mark_resets, mode="reset")})
    work_as_on_a_device(monkeypatch)
    env.reset(seed=1)
    env.height.zero_()
    env.elapsed_steps += torch.tensor([0, 0, 0, 1])
    actions = actions_for(env, 3)
    env.step(actions[0])  # what is sent to the device once, is there then
    with no_host_sync(monkeypatch):
        env.step(actions[1])
    assert env.height.tolist() == [0.0, 0.0, 0.0, 1.0]  # env 3 ended after its third step
    env.close()


LEGS_N = 3
FEET = {"sensor": "feet"}
OBSERVATIONS = "base_lin_vel base_ang_vel projected_gravity joint_pos_rel joint_vel last_action generated_command"
REWARDS: dict[str, dict[str, Any]] = {
    "track_lin_vel_xy_exp": {}, "track_ang_vel_z_exp": {}, "lin_vel_z_l2": {}, "ang_vel_xy_l2": {},
    "flat_orientation_l2": {}, "base_height_l2": {"target_height": 0.3}, "action_rate_l2": {}, "joint_torques_l2": {},
    "joint_vel_l2": {}, "joint_acc_l2": {}, "joint_pos_limits": {}, "posture": {"std": {".*_hip_joint": 0.2}},
    "feet_air_time": FEET, "feet_slide": FEET, "feet_clearance": FEET, "feet_impact": FEET | {"max_force": 50.0},
    "feet_gait": FEET | {"offsets": [0.5, 0.0, 0.0, 0.5]}, "undesired_contacts": FEET, "is_alive": {},
    "is_terminated": {}, "joint_torque_limits": {},
}  # fmt: skip
COMMAND = {"func": "UniformVelocityCommand", "resampling_time": [0.04, 0.1], "params": {"heading": [-3.0, 3.0]}}
WHOLE: dict[str, Any] = {
    "commands": {"base_velocity": COMMAND},
    "observations": {
        **{name: {"func": name} for name in (*OBSERVATIONS.split(), "gait_phase", "base_height")},
        "feet_contact": {"func": "feet_contact", "params": FEET},
    },
    "rewards": {name: {"func": name, "params": params} for name, params in REWARDS.items()},
    "terminations": {
        "lean": {"func": "bad_orientation"},
        "low": {"func": "base_height_below", "params": {"minimum": 0.05}},
        "kick": {"func": "illegal_contact", "params": {"sensor": "trunk"}},
    },
    "curriculum": {"range": {"func": "command_range"}},
    "events": ALL,
}
SENSORS = [
    {"sensor_type": "Contact", "uid": "feet", "link_names": [".*_foot"]},
    {"sensor_type": "Contact", "uid": "trunk", "link_names": ["base"]},
]


def whole(engine: str, **top: Any) -> LocomotionEnv:
    """Build an environment with every term of legs."""
    sim_cfg = {"physics_dt": 0.005, "num_threads": 1, "sim_device": ENGINES[engine]}
    return legs_env(LEGS_N, WHOLE | {"sim_cfg": sim_cfg}, sensor=SENSORS, **top)


@pytest.fixture(scope="module")
def on_warp() -> Iterator[LocomotionEnv]:
    env = whole("warp", max_episode_steps=6)
    yield env
    env.close()


@pytest.mark.e2e
def test_both_engines_agree_over_some_steps(on_warp: LocomotionEnv) -> None:
    envs = whole("batch", max_episode_steps=6), on_warp
    for env in envs:
        env.reset(seed=2)
        env.elapsed_steps += torch.tensor([0, 1, 3])  # so that episodes end at different times
    for step, action in enumerate(actions_for(envs[0], 8)):
        (obs, _, *ends, info), (other, _, *others, noted) = (env.step(0.3 * action) for env in envs)
        assert all(torch.equal(a, b) for a, b in zip(ends, others, strict=True)), step
        ours, theirs = (flatten_dict_observation(o) for o in (obs, other))
        torch.testing.assert_close(theirs, ours, atol=2e-2, rtol=1e-2)
        feet, same = (env.sim.get_contact_sensor("feet") for env in envs)
        for name in ("in_contact", "first_contact"):
            assert torch.equal(getattr(feet, name), getattr(same, name)), (step, name)
        for name in ("air_time", "contact_time", "last_air_time", "last_contact_time", "pos", "vel"):
            torch.testing.assert_close(getattr(same, name), getattr(feet, name), atol=2e-2, rtol=0)
        torch.testing.assert_close(same.force, feet.force, atol=2.0, rtol=0.05)
        for kind in ("rewards", "metrics"):
            assert info[kind].keys() == noted[kind].keys()
            for name, value in info[kind].items():
                torch.testing.assert_close(noted[kind][name].float(), value.float(), atol=2e-2, rtol=0.05, msg=name)


def test_step_never_waits_for_the_device(on_warp: LocomotionEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_never_waits(on_warp, 7, monkeypatch)  # episodes of 6 steps: some end, and commands are drawn anew


def test_imitation_of_a_motion_never_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    env = env_on("warp", "g1_motion/gym_config.json", 2, max_episode_steps=4)
    assert_never_waits(env, 6, monkeypatch)
    env.close()
