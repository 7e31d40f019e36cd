"""The names of joints and links in a scene's model files, read before the scene is built."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

from embodichain.lab.gym.config.scene_checks import entities_in_config, has_config_robot, is_given
from embodichain.lab.gym.envs.env_cfg import EmbodiedEnvCfg
from embodichain.lab.gym.envs.managers.scene_names import SceneNames
from embodichain.lab.sim.cfg import ArticulationCfg, RobotCfg
from embodichain.lab.sim.model.checks import MENAGERIE
from embodichain.lab.sim.model.scene import SceneBuilder
from embodichain.lab.sim.sensors.cfg import ContactSensorCfg
from embodichain.utils.errors import collected, unknown_name


def with_model_names(
    names: SceneNames, cfg: EmbodiedEnvCfg, env_class: type | None, wrong: Collection[str], problems: list[str]
) -> SceneNames:
    """Return a config's names with those of its model files, and check what robots and contact sensors name in them.

    Files that cannot be read yet are passed over: what has errors already, and Menagerie models, which would be
    downloaded.

    Args:
        names: what the config says by itself.
        env_class: of the environment; None where it is not known, and then nothing is read.
        wrong: paths of what is left out of the config, since its type is wrong.
        problems: the config's so far, a line each; those found here are added.
    """
    if cfg.robot is None or not has_config_robot(env_class):
        return names
    builder = SceneBuilder(cfg.sim_cfg)
    for place, entity in entities_in_config(cfg):
        if isinstance(entity, ArticulationCfg) and _is_readable(entity, place, [*wrong, *problems]):
            with collected(problems):
                builder.add_articulation(entity, place)
    for i, sensor in enumerate(cfg.sensor):
        if isinstance(sensor, ContactSensorCfg):
            _read_sensor(sensor, f"sensor[{i}]", builder, cfg.robot, names, problems)
    return dataclasses.replace(
        names,
        robot=cfg.robot.uid,
        joints={uid: list(joints) for uid, joints in builder.joints.items()},
        links={uid: list(links) for uid, links in builder.links.items()},
        sensed={uid: links for uid, (links, _) in builder.sensed_links.items()},
    )


def _is_readable(entity: ArticulationCfg, place: str, wrong: Sequence[str]) -> bool:
    """Return whether an entity's model can be read: nothing in it is wrong, and its files are on this machine."""
    files: list[Any] = [entity.fpath or ""]
    if isinstance(entity, RobotCfg) and entity.urdf_cfg is not None:
        files += [part.urdf_path for part in entity.urdf_cfg.components]
    if not all(map(is_given, (entity.uid, *files))) or any(file.startswith(MENAGERIE) for file in files):
        return False
    return not any(path.startswith((f"{place}.", f"{place}:")) or path == place for path in wrong)


def _read_sensor(
    sensor: ContactSensorCfg,
    place: str,
    builder: SceneBuilder,
    robot: RobotCfg,
    names: SceneNames,
    problems: list[str],
) -> None:
    entity = robot.uid if sensor.entity is None else sensor.entity
    if not (is_given(sensor.uid) and is_given(sensor.link_names)) or any(
        line.startswith(f"{place}.") for line in problems
    ):
        return
    if entity in builder.links:
        with collected(problems):
            builder.add_contact_sensor(sensor.uid, entity, sensor.link_names, place)
    elif names.uids is not None and entity not in names.uids:
        problems.append(f"{place}.entity: {unknown_name('robot or articulation', entity, builder.links)}")
