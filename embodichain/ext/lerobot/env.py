"""Our tasks in LeRobot's evaluation: a vector environment with its names, and the folder that its EnvHub loads.

Shapes: N environments, S size of the robot's state, O flattened observation size, A action size.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from pprint import pformat
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from tensordict import TensorDict
from typing_extensions import override

from embodichain import __version__
from embodichain.agents.rl.checkpoint.saved_run import find_run, names_run
from embodichain.agents.rl.run_config import load_checkpoint_config, load_run_config
from embodichain.commands.arguments import checked_path, output_folder
from embodichain.ext.lerobot.recorder import colour_cameras, image_of, state_of
from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.base_env import space_of
from embodichain.lab.gym.envs.managers.record import View
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.lab.gym.utils.arrays import to_action, to_array, to_arrays
from embodichain.utils import ConfigError, files, replace
from embodichain.utils.observations import flat_input

FORMAT = "lerobot-env"
"""Format's name for ``embodichain export``."""

_MARKS = {  # what an earlier export is recognised by
    "env.py": b"import make_lerobot_env",
    "requirements.txt": b"embodichain-mujoco==",
    "README.md": b"`embodichain export`",
}
_README = Path(__file__).with_name("readme.md.tmpl")
_SIZE = (320, 240)  # of the images of LeRobot's videos, pixels


class LeRobotVectorEnv(gym.vector.VectorEnv[dict[str, Any], np.ndarray, np.ndarray]):
    """N environments of a task as LeRobot's evaluation steps them; see its documentation of EnvHub.

    Observations have the names that its ``preprocess_observation`` knows, and the content of the datasets that
    ``LeRobotRecorder`` writes: ``pixels``, the cameras' colours by name, uint8 [N, H, W, 3]; ``agent_pos``, the entry
    ``state`` or else the joint positions, [N, S]; and ``environment_state``, all numbers of the observation, [N, O].
    Environments that are done reset themselves in the same step.
    """

    def __init__(self, env: EmbodiedEnv) -> None:
        self.env = env
        self.num_envs = env.num_envs
        self.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": round(1.0 / env.step_dt),
            "autoreset_mode": AutoresetMode.SAME_STEP,
        }
        self.render_mode = "rgb_array"
        self._cameras = colour_cameras(env)
        self._camera: View | None = None
        obs, _ = env.reset(seed=env.cfg.seed)
        self.single_observation_space = space_of(self._named(obs))
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, self.num_envs)
        self.single_action_space, self.action_space = env.single_action_space, env.action_space

    @override
    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin new episodes.

        Args:
            seed: numbers of the episodes: k, or k, k + 1, ..., one for each environment. An episode is the same for any
                N. None: the next ones.
            options: LeRobot's own; none is needed.
        """
        if seed is None:
            obs, _ = self.env.reset()
        else:
            first = seed if isinstance(seed, int) else seed[0]
            obs, _ = self.env.reset(seed=self.env.cfg.seed, options={"enumerate_episodes": True, "share": (first, 1)})
        return to_arrays(self._named(obs)), {}

    @override
    def step(self, actions: np.ndarray) -> tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Advance every environment by one control step; ``infos["is_success"]`` is [N] bool, at episodes' ends."""
        obs, reward, terminated, truncated, info = self.env.step(to_action(actions, self.env))
        done = to_array(terminated | truncated)
        is_success = to_array(info["success"]) & done
        infos: dict[str, Any] = {"is_success": is_success}
        if done.any():
            infos |= {"final_info": {"is_success": is_success}, "_final_info": done}
        return to_arrays(self._named(obs)), to_array(reward), to_array(terminated), to_array(truncated), infos

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return what each environment has by a name that LeRobot asks for, N values."""
        if name in ("task", "task_description"):
            return tuple(self.env.instructions())
        if name == "_max_episode_steps":
            return (self.env.cfg.max_episode_steps,) * self.num_envs
        if name == "render":
            return self.render()
        raise AttributeError(f"{type(self).__name__} has no '{name}' of each environment")

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return the same as :meth:`call`."""
        return self.call(name)

    @override
    def render(self) -> tuple[np.ndarray, ...]:
        """Return an image of each environment, [H, W, 3] uint8."""
        if self._camera is None:
            self._camera = View(self.env, _SIZE)
        return tuple(self._camera.render(i) for i in range(self.num_envs))

    @override
    def close_extras(self, **kwargs: Any) -> None:
        """Close the environment."""
        if self._camera is not None:
            self._camera.close()
        self.env.close()

    def _named(self, obs: TensorDict) -> TensorDict:
        """Return an observation's content by LeRobot's names."""
        entries: dict[str, Any] = {"agent_pos": state_of(self.env, obs), "environment_state": flat_input(obs)}
        if self._cameras:
            entries["pixels"] = {uid: image_of(obs, uid) for uid in self._cameras}
        return TensorDict(entries, batch_size=obs.batch_size)


def make_lerobot_env(config: Mapping[str, Any], num_envs: int) -> LeRobotVectorEnv:
    """Build an environment's config, as plain data, for LeRobot; an exported ``env.py`` calls this."""
    cfg = config_to_cfg(dict(config))
    return LeRobotVectorEnv(build_env(config["id"], replace(cfg, num_envs=num_envs, group_size=1, dataset={})))


def export(target: str, out: str | None, observations: int, envs: int, allowed_imports: Sequence[str]) -> list[str]:
    """Export for ``export --format lerobot-env``; return the files written."""
    return [str(path) for path in export_lerobot_env(target, checked_path(out, output_folder), allowed_imports)]


def export_lerobot_env(target: str, out: Path | None, allowed_imports: Sequence[str] = ()) -> list[Path]:
    """Write a folder that LeRobot's EnvHub loads: ``env.py``, ``requirements.txt`` and ``README.md``.

    Args:
        target: a run, or a training config, whose environment is written.
        out: the folder; None: ``export/lerobot-env`` in the run's folder, or ``outputs/lerobot-env/<task>``.
        allowed_imports: prefixes of modules that the config may name.
    """
    if names_run(target):
        saved = find_run(target)
        run = load_checkpoint_config(saved.content["config"], (), allowed_imports)
        folder = out or saved.folder / "export" / FORMAT
    else:
        run = load_run_config(target, (), allowed_imports)
        folder = out or Path("outputs") / FORMAT / run.env_id
    if not isinstance(run.env, EmbodiedEnvCfg):
        raise ConfigError(f"{target}: --format {FORMAT}: '{run.env_id}' is Gymnasium's: LeRobot takes it as it is")
    if run.env.robot is None:
        raise ConfigError(f"{target}: --format {FORMAT}: '{run.env_id}' has no robot, whose state LeRobot observes")
    config = run.resolved["gym_config"]
    texts = {
        "env.py": _env_file(run.env_id, config, run.trainer.import_modules),
        "requirements.txt": f"embodichain-mujoco=={__version__}\n",
        "README.md": _README.read_text(encoding="utf-8").format(env_id=run.env_id),
    }
    for name, mark in _MARKS.items():
        files.check_replaceable(folder / name, mark)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def _env_file(env_id: str, config: Mapping[str, Any], modules: Sequence[str]) -> str:
    imports = "".join(f"import {module}  # noqa: F401 (registers the task)\n" for module in modules)
    return (
        f'"""{env_id} of EmbodiChain RL on MuJoCo {__version__}, for LeRobot\'s EnvHub."""\n\n'
        f"{imports}from embodichain.ext.lerobot.env import make_lerobot_env\n\n"
        f"CONFIG = {pformat(dict(config), width=116, sort_dicts=False)}\n\n\n"
        "def make_env(n_envs=1, use_async_envs=False, cfg=None):\n"
        '    """Return the task as a vector environment; its environments are stepped together, in this process."""\n'
        "    return make_lerobot_env(CONFIG, n_envs)\n"
    )
