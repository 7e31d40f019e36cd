"""The mirror map of an environment. Shapes: N environments, J joints, O flattened observation size, A action size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.utils import ConfigError
from embodichain.utils.observations import MirrorMap, flatten_dict_observation
from embodichain.utils.utility import load_config_file
from tests.lab.scenes import cart_cfg, env_of

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
