"""A config's scene: an image of it, or a page in the browser, and a policy's input and actions in it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from embodichain.agents.rl.run_config import RunConfig, scene_cfg, with_scene
from embodichain.agents.rl.trainer import viewer
from embodichain.lab.gym.env_sources import TaskCfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.record import followed, record_camera_data
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.lab.sim.objects import Robot, SceneBody
from embodichain.lab.sim.rendering.renderer import CameraPose, Renderer
from embodichain.lab.sim.rendering.shot import RenderingUnavailableError
from embodichain.tools.agents import HandAgent, action_numbers
from embodichain.tools.validate import read_config
from embodichain.utils import CommandFailedError, replace
from embodichain.utils.observations import entry_columns, entry_spaces

_DIRECTION = np.array([-1.0, 1.0, 0.8]) / 2.64**0.5  # from the target to the camera
_LEAST_RADIUS = 0.4  # m
_HEAD = 0.1  # m: the links' shapes reach above their origins, a head the most
_FIELD = 1.07  # focal length in heights of the image: 50 degrees


@contextmanager
def opened_scene(
    path: Path, overrides: Sequence[str], seed: int, allowed_imports: Sequence[str]
) -> Iterator[tuple[str, EmbodiedEnv, dict[str, object]]]:
    """Yield the task's name, one environment of a training or environment config, and the config's camera.

    Nothing runs on a GPU, whatever the config says.
    """
    config = read_config(path, overrides, allowed_imports, device="cpu")
    cfgs: list[TaskCfg | None]
    if isinstance(config, RunConfig):
        env_id, cfg, cfgs = config.env_id, config.env, [config.env, config.eval_env]
    else:
        (env_id, cfg), cfgs = config, [config[1]]
    own = with_scene(cfg, "view").without_records()
    env = build_env(env_id, replace(own, num_envs=1, group_size=1, seed=seed))
    with closing(env):
        yield env_id, env, config_camera(cfgs)


def render_scene(env: EmbodiedEnv, view: dict[str, object], size: tuple[int, int], seed: int) -> np.ndarray:
    """Return an image [H, W, 3] uint8 of the beginning of an episode."""
    env.reset(seed=seed)
    with closing(SceneCamera(env, view, size)) as camera:
        return camera.render()


def show_scene(env: EmbodiedEnv, seed: int) -> None:
    """Show the scene in the browser, with a slider for each number of the action, until Ctrl-C."""
    viewer.play_live(env, HandAgent(env), torch.device("cpu"), seed)


def config_camera(configs: Iterable[TaskCfg | None]) -> dict[str, object]:
    """Return the parameters of the first recording event in some configs, or an empty dictionary."""
    for cfg in [own for cfg in configs if cfg is not None and (own := scene_cfg(cfg)) is not None]:
        for event in cfg.events.values():
            if isinstance(event.func, type) and issubclass(event.func, record_camera_data):
                return dict(event.params)
    return {}


class Camera(Protocol):
    """Makes images [H, W, 3] uint8.

    Attributes:
        size: W and H, both even.
        fps: images a second of a video with one of each step.
    """

    size: tuple[int, int]
    fps: float

    def render(self) -> np.ndarray:
        """Return an image of the current state."""

    def close(self) -> None:
        """Release its resources."""


class OwnCamera:
    """The images that another library's environments render, of the first of them, after a reset by ``seed``."""

    def __init__(self, env: Any, seed: int) -> None:
        self._env = env
        env.reset(seed=seed)
        try:
            height, width, _ = self.render().shape
        except CommandFailedError as error:
            raise RenderingUnavailableError(str(error)) from error
        self.size, self.fps = (width, height), env.render_fps

    def render(self) -> np.ndarray:
        """Return an image of the current state."""
        image: np.ndarray = self._env.first_image()
        return image

    def close(self) -> None:
        """Nothing is to be released: the environment has the resources."""


class SceneCamera:
    """Renders images [H, W, 3] uint8 of an environment.

    Args:
        env: the environments.
        camera: ``eye``, ``target``, ``up``, ``intrinsics`` and ``follow_uid`` as for ``record_camera_data``; default:
            a view of all bodies, or of the robot or the file's body that moves freely, moving with it.
        size: width and height, pixels, both even.
    """

    def __init__(self, env: EmbodiedEnv, camera: dict[str, object], size: tuple[int, int]) -> None:
        cfg = env.sim.cfg
        self._renderer = Renderer(env.sim.backend, env.sim.appearance, *size, cfg.enable_rt, cfg.render_device)
        if "eye" not in camera and env.followed_uid is not None:
            camera = {"follow_uid": env.followed_uid}
        self.pose = _pose(env, camera, size)
        self.size, self.fps = size, 1.0 / env.step_dt
        self._env, self._follow_uid = env, camera.get("follow_uid")

    def render(self, index: int = 0) -> np.ndarray:
        """Return an image of the current state of an environment, the first one unless another is named."""
        uid = None if self._follow_uid is None else str(self._follow_uid)
        return self._renderer.render(index, followed(self._env, self.pose, uid, index))

    def close(self) -> None:
        """Release OpenGL."""
        self._renderer.close()


def _pose(env: EmbodiedEnv, camera: dict[str, object], size: tuple[int, int]) -> CameraPose:
    width, height = size
    up = _vector(camera.get("up", (0.0, 0.0, 1.0)))
    focal = _FIELD * height
    intrinsics = (focal, focal, width / 2, height / 2)
    if "eye" in camera and "target" in camera:
        given, taken = camera.get("intrinsics"), camera.get("resolution", (640, 480))
        if given is not None:
            # The same vertical field of view as the recording.
            scale = height / float(np.asarray(taken)[1])
            fx, fy = (float(f) * scale for f in np.asarray(given)[:2])
            intrinsics = (fx, fy, width / 2, height / 2)
        return CameraPose(_vector(camera["eye"]), _vector(camera["target"]), up, intrinsics)
    places = env.sim.backend.read("xpos")[0].double().cpu().numpy()  # [bodies, 3]
    if "follow_uid" in camera:
        uids = [*env.sim.robots, str(camera["follow_uid"])]
        seen = env.sim.get_asset(env.followed_uid or uids[0])
        assert isinstance(seen, Robot | SceneBody)  # a file's scene has no other entities
        base = seen.get_local_pose()[0, :2].double().cpu().numpy()
        places = places[seen.base.bodies if isinstance(seen, Robot) else seen.bodies] - [*base, 0.0]
        places[:, 2] += _HEAD
    else:
        places = places[1:]  # without the world
    low, high = places.min(axis=0), places.max(axis=0)
    centre, radius = (low + high) / 2, max(float(np.linalg.norm(high - low)) / 2, _LEAST_RADIUS)
    return CameraPose(_vector(centre + 2.6 * radius * _DIRECTION), _vector(centre), up, intrinsics)


def _vector(value: object) -> tuple[float, float, float]:
    x, y, z = (float(part) for part in np.asarray(value))
    return x, y, z


def format_spaces(env_id: str, env: EmbodiedEnv) -> str:
    """Return a table of the observation's entries and of the action's numbers."""
    columns = entry_columns(env.single_observation_space)
    lines = [f"{env_id}: a step is {env.step_dt:g} s", "", "observation"]
    for name, space in entry_spaces(env.single_observation_space).items():
        part = columns.get(name)
        place = "image, beside the flat observation" if part is None else f"columns {part.start} to {part.stop - 1}"
        lines.append(f"  {name:28} {list(space.shape)!s:14} {place}")
    lines += ["", "action"]
    for i, number in enumerate(action_numbers(env)):
        low, high = number.commands
        what = f"{number.moves}: {number.meaning}: {low:.4g} to {high:.4g}" if number.moves else ""
        lines.append(f"  {i:3}  {number.term:20} [{number.low:g}, {number.high:g}]  {what}".rstrip())
    return "\n".join(lines)
