"""A whole scene from one MJCF file, as it is: nothing is added to the physics."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import mujoco

from embodichain.lab.sim.model.mujoco_warnings import collecting_warnings
from embodichain.lab.sim.model.scene import RENDER_CAMERA, CompiledScene
from embodichain.utils import ConfigError, logger
from embodichain.utils.errors import nearest

GYMNASIUM = "gymnasium/"
"""Prefix of the names of the scenes in the package gymnasium, for its MuJoCo tasks."""
_LARGEST_IMAGE = (1920, 1080)


def scene_path(name: str) -> Path:
    """Return the file of a scene: a path, or ``gymnasium/<file>``; ConfigError where there is none."""
    if name.startswith(GYMNASIUM):
        folder = _gymnasium_folder()
        path = folder / name.removeprefix(GYMNASIUM)
        if not path.is_file():
            known = sorted(GYMNASIUM + file.name for file in folder.glob("*.xml"))
            raise ConfigError(f"no scene '{name}' in gymnasium.{nearest(name, known)} There are: {', '.join(known)}")
        return path
    path = Path(name).expanduser()
    if not path.is_file():
        raise ConfigError(f"no such file: {path.absolute()}")
    return path


def compile_scene_file(name: str, external_forces: bool = False) -> CompiledScene:
    """Compile a scene for physics and for rendering.

    Physics runs on the model that MuJoCo makes of the file, bit for bit: its options, contacts and sensors, its geoms
    that are only visible, too. A file without keyframes gets one, of the file's reference pose. The model for rendering
    has in addition room for large images, and the camera that the ray tracer moves.

    Args:
        name: name as for :func:`scene_path`.
        external_forces: let the engine compute ``cfrc_ext``, by one more sensor.

    Raises:
        ConfigError: there is no such file, or MuJoCo refuses it.
    """
    path = scene_path(name)
    heard: list[str] = []
    try:
        with collecting_warnings(heard):
            model, visual_model = _compile(path, external_forces)
    except (LookupError, ValueError) as error:  # a LookupError for an encoding that is none
        raise ConfigError(f"scene '{name}': {' '.join(str(error).split())}") from error
    if not name.startswith(GYMNASIUM):  # which a user cannot change
        for warning in heard:
            logger.log_warning(f"scene '{name}': {warning}")
    return CompiledScene(model, visual_model)


def _compile(path: Path, external_forces: bool) -> tuple[mujoco.MjModel, mujoco.MjModel]:
    spec = mujoco.MjSpec.from_file(str(path))
    if not list(spec.keys):
        spec.add_key(name="init")
    if external_forces:
        _add_force_sensor(spec)
    model = spec.compile()
    spec.visual.global_.offwidth, spec.visual.global_.offheight = _LARGEST_IMAGE
    spec.worldbody.add_camera(name=RENDER_CAMERA)
    return model, spec.compile()


def _add_force_sensor(spec: mujoco.MjSpec) -> None:
    """Add a sensor of an acceleration, for which the engine computes the forces; the physics is the same."""
    sensor = spec.add_sensor(name="computes cfrc_ext", type=mujoco.mjtSensor.mjSENS_FRAMELINACC)
    sensor.objtype, sensor.objname = mujoco.mjtObj.mjOBJ_BODY, "world"


def _gymnasium_folder() -> Path:
    package = importlib.util.find_spec("gymnasium")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "envs" / "mujoco" / "assets"
