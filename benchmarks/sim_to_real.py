"""From training to another simulation: policies trained with and without the sim-to-real kit, under a delay.

    python -m benchmarks.sim_to_real configs/agents/rl/go2_flat/train_config_quickstart.json --seeds 1 --envs 200

Each config is trained as it is ("plain") and with noise on its sensors, delayed actions, pushes, and random gains, mass
and friction ("kit"), for equally long: set trainer.iterations by --override, since learning with noise takes longer.
Both policies are exported. In their own training environment, and in plain MuJoCo by the exported runner, they follow
fixed commands of the config's ranges from the same states: with the training's physics step, and with half of it and
20 ms of action delay. Shapes: E episodes.

Success: not fallen (tilted by more than 1 rad) and mean velocity errors within the task's thresholds. Errors are means
over the steps before a fall. The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import json
from contextlib import chdir
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mujoco
import numpy as np
import torch

from benchmarks.plain_robot import PlainRobot
from benchmarks.seeds import train
from embodichain.agents.rl.checkpoint.saved_run import find_run
from embodichain.agents.rl.gymnasium_checks import with_scene
from embodichain.agents.rl.models import policy_input
from embodichain.agents.rl.run_config import TaskCfg
from embodichain.tools.export.formats import load_runner
from embodichain.tools.export.run import export_run
from embodichain.tools.open_run import open_run
from embodichain.utils.configclass import replace

ROOT = Path(__file__).resolve().parents[1]
DELAY_S = 0.02
FALL_COS = float(np.cos(1.0))  # of the tilt
# Noise of the observations, friction and pushes as in "Learning to Walk in Minutes Using Massively Parallel Deep
# Reinforcement Learning" (Rudin et al., 2021); pushes every 4 s and half as strong, for episodes of 10 s and a robot
# of 15 kg. Delays are 0 to 40 ms.
NOISE = {"base/lin_vel": 0.1, "base/ang_vel": 0.2, "base/gravity": 0.05, "joints/pos": 0.01, "joints/vel": 1.5}
DELAY_STEPS = [0, 2]
GAINS = [0.8, 1.2]  # factors
FRICTION = [0.5, 1.25]
ADDED_MASS = [-1.0, 2.0]  # kg, of the base
PUSH = [[-0.5, -0.5, 0.0], [0.5, 0.5, 0.0]]  # m/s
PUSH_STEPS = 200  # 4 s


@dataclass(frozen=True)
class Score:
    """Of a policy's episodes."""

    success: float
    """Share of episodes."""
    falls: float
    """Share of episodes."""
    error_xy: float
    """Mean velocity error, m/s."""
    error_yaw: float
    """Mean error of the yaw rate, rad/s."""


class Tally:
    """Sums velocity errors of E episodes up to their falls."""

    def __init__(self, commands: np.ndarray) -> None:
        self._commands = commands  # [E, 3]
        self._sums = np.zeros((len(commands), 2))
        self._steps = np.zeros(len(commands))
        self._fallen = np.zeros(len(commands), dtype=bool)

    def add(self, linear: np.ndarray, angular: np.ndarray, gravity: np.ndarray) -> None:
        """Count a control step: velocities and the direction downwards in the base's frame, [E, 3] each."""
        self._fallen |= gravity[:, 2] > -FALL_COS
        xy = np.linalg.norm(linear[:, :2] - self._commands[:, :2], axis=1)
        yaw = np.abs(angular[:, 2] - self._commands[:, 2])
        self._sums += np.where(self._fallen[:, None], 0.0, np.stack((xy, yaw), axis=1))
        self._steps += ~self._fallen

    def score(self, max_xy: float, max_yaw: float) -> Score:
        """Return the score, with the thresholds of success."""
        errors = self._sums / np.maximum(self._steps, 1)[:, None]
        good = ~self._fallen & (errors[:, 0] < max_xy) & (errors[:, 1] < max_yaw)
        return Score(float(good.mean()), float(self._fallen.mean()), *map(float, errors.mean(axis=0)))


def kit(config: str) -> list[str]:
    """Return the overrides that add the kit to a training config whose observations and links are named as Go2's."""
    train_config = json.loads(Path(config).read_text(encoding="utf-8"))
    env = json.loads((ROOT / train_config["trainer"]["gym_config"]).read_text(encoding="utf-8"))
    entries = {term.get("name", key) for key, term in env["env"]["observations"].items()}
    terms: dict[str, Any] = {
        f"env.observations.noise_{name.replace('/', '_')}": {
            "func": "observation_noise", "mode": "modify", "name": name, "params": {"bound": bound},
        }
        for name, bound in NOISE.items()
        if name in entries
    }  # fmt: skip
    terms |= {f"env.actions.{name}.params.delay": DELAY_STEPS for name in env["env"]["actions"]}
    terms |= {f"env.events.kit_{name}": event for name, event in random_physics(env["robot"]).items()}
    return [f"{path}={json.dumps(value)}" for path, value in terms.items()]


def random_physics(robot: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the kit's events by name, for a robot's config block."""
    uid = robot["uid"]

    def each_episode(func: str, links: list[str] | None, **ranges: list[float]) -> dict[str, Any]:
        entity = {"uid": uid} if links is None else {"uid": uid, "link_names": links}
        return {"func": func, "mode": "reset", "params": {"entity_cfg": entity, **ranges}}

    return {
        "drives": each_episode("randomize_joint_drive", None, stiffness_range=GAINS, damping_range=GAINS),
        "friction": each_episode("randomize_link_friction", robot["collision_links"], friction_range=FRICTION),
        "mass": each_episode("randomize_link_mass", ["base"], mass_range=ADDED_MASS),
        "pushes": {
            "func": "push_robot", "mode": "interval", "interval_step": PUSH_STEPS, "params": {"velocity_range": PUSH},
        },
    }  # fmt: skip


def compare(run: str, episodes: int, seconds: float, seed: int) -> dict[str, Score]:
    """Return the scores of a run's policy by the place where it acts."""
    path = Path(run) / "export/policy.onnx"
    export_run(run, "onnx", path, 256, 8, ())
    with open_run(find_run(run), episodes, change=with_fixed_commands) as opened:
        env: Any = opened.env
        steps = round(seconds / env.step_dt)
        limits = env.max_velocity_error, env.max_yaw_rate_error
        obs, _ = env.reset(seed=seed)
        commands = env.command_manager.get_command("base_velocity").numpy().copy()
        backend: Any = env.sim.backend
        states = np.array(backend._batch.state)
        own = Tally(commands)
        for _ in range(steps):
            with torch.no_grad():
                chosen = opened.policy.get_action(policy_input(opened.policy, obs, None, opened.device), True)
            obs, *_ = env.step(chosen["action"])
            base = env.robot.base
            own.add(base.linear_velocity().numpy(), base.angular_velocity().numpy(), base.projected_gravity().numpy())
        scores = {"training environment": own.score(*limits)}
        model, uid = env.sim.model, env.robot.uid
    half = float(model.opt.timestep) / 2
    for place, physics_dt, delay_s in (("plain MuJoCo", None, 0.0), ("half step, 20 ms late", half, DELAY_S)):
        tally = deploy(path, model, uid, states, commands, steps, physics_dt, delay_s)
        scores[place] = tally.score(*limits)
    return scores


def with_fixed_commands(task: TaskCfg) -> TaskCfg:
    """Return an environment's config in which each command lasts, and no episode ends by itself."""
    cfg = with_scene(task, "sim_to_real")
    lasting = {name: replace(term, resampling_time=(1e6, 1e6)) for name, term in cfg.commands.items()}
    return replace(cfg, commands=lasting, terminations={}, max_episode_steps=None)


def deploy(
    path: Path,
    model: Any,
    uid: str,
    states: np.ndarray,
    commands: np.ndarray,
    steps: int,
    physics_dt: float | None,
    delay_s: float,
) -> Tally:
    """Let the exported runner drive E robots in plain MuJoCo.

    Args:
        states: the engine's integration states to begin from, [E, ...].
        commands: [E, 3].
    """
    runner = load_runner(path.with_name("policy_runner.py")).PolicyRunner(path)
    runner = type(runner)(path, action_delay_steps=round(delay_s / runner.spec["control_period_s"]))
    robots = [PlainRobot(model, uid, runner.spec, physics_dt) for _ in states]
    for robot, state in zip(robots, states, strict=True):
        mujoco.mj_setState(robot.model, robot.data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
    tally = Tally(commands)
    measured = _measure(robots)
    for _ in range(steps):
        out = runner.act(measured | {"base_velocity": commands})
        for robot, command in zip(robots, out["command"], strict=True):
            robot.apply(command)
        measured = _measure(robots)
        tally.add(measured["base_lin_vel"], measured["base_ang_vel"], measured["projected_gravity"])
    return tally


def _measure(robots: list[PlainRobot]) -> dict[str, np.ndarray]:
    """Return the measurements of all robots, [E, ...] by name."""
    rows = [robot.measure() for robot in robots]
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def main(argv: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--envs", type=int, default=200, metavar="E", help="episodes (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of an episode (default: %(default)s)")
    parser.add_argument("--override", action="append", default=[], metavar="key=value", help="of both trainings")
    args = parser.parse_args(argv)
    config = str(Path(args.config).resolve())
    columns = [field.name for field in fields(Score)]
    print(f"{'seed':>4}  {'policy':6}  {'where':22}" + "".join(f"{name:>11}" for name in columns))
    results = []
    with TemporaryDirectory() as folder, chdir(folder):
        for seed in args.seeds:
            for name, overrides in (("plain", []), ("kit", kit(config))):
                summary: dict[str, Any] = train(config, seed, ["trainer.events={}", *overrides, *args.override])
                for where, score in compare(summary["run_folder"], args.envs, args.seconds, 1_000 + seed).items():
                    row = vars(score)
                    print(f"{seed:>4}  {name:6}  {where:22}" + "".join(f"{v:>11.3f}" for v in row.values()), flush=True)
                    results.append({"seed": seed, "policy": name, "where": where, **row})
    print(json.dumps({"config": args.config, "episodes": args.envs, "results": results}))


if __name__ == "__main__":
    main()
