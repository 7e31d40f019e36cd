"""The mirror map of an environment. Shapes: N environments, J joints, O flattened observation size, A action size."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.term_env import TermEnv
from embodichain.utils import ConfigError
from embodichain.utils.configclass import to_dict
from embodichain.utils.mirror import MirrorMap
from embodichain.utils.observations import flatten_dict_observation
from embodichain.utils.utility import load_config_file
from tests.lab.quadruped import SYMMETRY, quadruped, robot_data
from tests.lab.scenes import cart_cfg, env_of

REPOSITORY = Path(__file__).resolve().parents[4]
GO2, GO2_FLAT = (
    REPOSITORY / name for name in ("embodichain/lab/sim/assets/go2.xml", "configs/agents/rl/go2_flat/gym_config.json")
)

VECTOR, PSEUDOVECTOR = torch.tensor([1.0, -1.0, 1.0]), torch.tensor([-1.0, 1.0, -1.0])
MOVE = {"func": "DeltaQposTerm", "params": {"scale": 0.2}}


def numbers(env: TermEnv, shape: list[int]) -> Tensor:
    """Return 0, 1, 2, ... in a shape, as an entry of the observation."""
    size = int(torch.tensor(shape).prod())
    return torch.arange(float(size)).reshape(shape).expand(env.num_envs, *shape)


def make_env(
    folder: Path,
    symmetry: dict[str, Any] | None,
    action: dict[str, Any] | None = None,
    shapes: dict[str, list[int]] | None = None,
    changes: dict[str, str] | None = None,
) -> EmbodiedEnv:
    """Build two quadrupeds; ``shapes``: of further entries of the observation."""
    terms = {n: {"func": f"{__name__}.numbers", "params": {"shape": shape}} for n, shape in (shapes or {}).items()}
    env = {"actions": {"move": action or MOVE}, "observations": terms, "sim_cfg": {"physics_dt": 0.004}}
    data = {"robot": robot_data(quadruped(folder, changes=changes)), "num_envs": 2, "env": env}
    return EmbodiedEnv(config_to_cfg(data | {"env": env | {"symmetry": symmetry}}, allowed_imports=["tests"]))


def with_entry(kind: object) -> dict[str, Any]:
    symmetry = copy.deepcopy(SYMMETRY)
    symmetry["observations"]["x"] = kind
    return symmetry


def mirrored_state(qpos: Tensor, qvel: Tensor, mirror_map: MirrorMap) -> tuple[Tensor, Tensor]:
    """Return the mirror image of a free base's and its joints' state; a quaternion's vector part is a pseudovector."""
    base = qpos[:, :3] * VECTOR, qpos[:, 3:4], qpos[:, 4:7] * PSEUDOVECTOR
    joints, rates = mirror_map.action(qpos[:, 7:]), mirror_map.action(qvel[:, 6:])
    return torch.cat((*base, joints), 1), torch.cat((qvel[:, :3] * VECTOR, qvel[:, 3:6] * PSEUDOVECTOR, rates), 1)


@pytest.mark.parametrize("changes", [{}, {'axis="-1 0 0"': 'axis="1 0 0"'}], ids=["signs 1", "signs of the hips -1"])
def test_mirrored_action_leads_from_the_mirrored_state_to_the_mirrored_next_state(
    changes: dict[str, str], tmp_path: Path
) -> None:
    env = make_env(tmp_path, SYMMETRY, changes=changes)
    mirror_map, backend = env.mirror_map(), env.sim.backend
    env.reset()
    generator = torch.Generator().manual_seed(0)
    qpos, qvel = backend.qpos[:1].clone(), torch.randn(1, 18, generator=generator) * 0.5
    qpos[:, 3:] += torch.randn(1, 16, generator=generator) * 0.1
    qpos[:, 3:7] /= qpos[:, 3:7].norm()
    both = zip((qpos, qvel), mirrored_state(qpos, qvel, mirror_map), strict=True)
    for name, rows in zip(("qpos", "qvel"), both, strict=True):
        backend.write(name, slice(0, rows[0].shape[1]), torch.cat(rows), env.all_env_ids)
    for _ in range(10):  # falls onto its feet
        action = torch.rand(1, 12, generator=generator) * 2 - 1
        obs, *_ = env.step(torch.cat((action, mirror_map.action(action))))
        flat = flatten_dict_observation(obs)
        images = mirrored_state(backend.qpos[:1], backend.qvel[:1], mirror_map)
        torch.testing.assert_close(images[0], backend.qpos[1:], atol=1e-6, rtol=0)
        torch.testing.assert_close(images[1], backend.qvel[1:], atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(mirror_map.obs(flat[:1]), flat[1:], atol=1e-6, rtol=1e-6)
    assert (flat[0] - flat[1]).abs().max() > 0.1  # the two motions differ
    assert torch.equal(mirror_map.obs(mirror_map.obs(flat)), flat)


GO2_SYMMETRY = {
    "observations": {
        **dict.fromkeys(("joints/pos", "joints/vel"), "joints"),
        **dict.fromkeys(("base/lin_vel", "base/gravity"), "vector"),
        "base/ang_vel": "pseudovector",
        "command": "planar_command",
        "last_action": "action",
        # A gait's mirror image is half a stride later: the clock's sine and cosine change their signs.
        "phase": {"permutation": [0, 1], "signs": [-1, -1]},
    },
    "actions": {"joint_position": "joints"},
}


def test_go2_and_its_task_are_symmetric_but_for_the_trunks_products_of_inertia(tmp_path: Path) -> None:
    model, inertia = GO2.read_text(encoding="utf-8"), "0.00012166 0.0014849 -3.12e-05"
    assert inertia in model
    (tmp_path / "go2.xml").write_text(model.replace(inertia, "0 0.0014849 0"), encoding="utf-8")
    data = load_config_file(GO2_FLAT)
    data.pop("$schema", None)
    data["robot"]["fpath"] = str(tmp_path / "go2.xml")
    data["env"] |= {"symmetry": GO2_SYMMETRY, "events": {}}
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


@pytest.mark.parametrize(
    ("kind", "shape", "expected"),
    [
        ("keep", [2], [0, 1]),
        ("vector", [3], [0, -1, 2]),
        ("vector", [6], [0, -1, 2, 3, -4, 5]),  # a history of two
        ("vector", [2, 3], [0, -1, 2, 3, -4, 5]),
        ("pseudovector", [3], [0, 1, -2]),  # -0 is 0
        ("planar_command", [3], [0, -1, -2]),
        ("joints", [12], [3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8]),
        ("action", [12], [3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8]),
        ({"joints": [".*_calf", "F._hip"]}, [6], [2, 3, 0, 1, 5, 4]),  # FL hip, FL calf, FR hip, FR calf, RL, RR calf
        ({"links": [".*_foot"]}, [4], [1, 0, 3, 2]),
        ({"links": [".*_foot"], "repeat": 2}, [8], [1, 0, 3, 2, 5, 4, 7, 6]),
        ({"grid": [2, 3]}, [6], [2, 1, 0, 5, 4, 3]),
        ({"grid": [2, 3]}, [2, 3], [2, 1, 0, 5, 4, 3]),
        ({"permutation": [1, 0]}, [2], [1, 0]),
        ({"permutation": [1, 0], "signs": [-1, -1], "repeat": 2}, [4], [-1, 0, -3, -2]),
    ],
)
def test_each_kind_mirrors_an_entry(kind: object, shape: list[int], expected: list[int], tmp_path: Path) -> None:
    env = make_env(tmp_path, with_entry(kind), shapes={"x": shape})
    obs, _ = env.reset()
    image = env.mirror_map().obs(flatten_dict_observation(obs))[0]
    assert image[36:].tolist() == expected  # behind robot/qf, robot/qpos and robot/qvel


@pytest.mark.parametrize(
    ("kind", "shape", "message"),
    [
        ("vector", [4], r"observations\.x: is of 3 components, and the entry has 4$"),
        ("vector", [2, 6], r"observations\.x: is of 3 components, and the entry has shape \[2, 6\]$"),
        ({"links": [".*_foot"]}, [4, 3], r"observations\.x: is of 4 components, and the entry has shape \[4, 3\]$"),
        ({"grid": [2, 3]}, [12], r"observations\.x: is of 6 components, and the entry has 12$"),
        ({"permutation": [1, 0]}, [4], r"observations\.x: is of 2 components, and the entry has 4$"),
        ({"permutation": [1, 0], "signs": [1, -1]}, [2], r"observations\.x: mirrored twice, a vector must be itself"),
        ({"joints": [".*_knee"]}, [2], r"observations\.x\.joints: unknown joint '\.\*_knee'"),
        ({"links": ["FL_feet"]}, [2], r"observations\.x\.links: unknown link 'FL_feet'\. Did you mean 'FL_foot'\?"),
        ("joint", [12], r"observations\.x: should be one of 'joints', .* 'permutation', .*, got 'joint'$"),
        ({}, [12], r"observations\.x: should be one of 'joints', .*, got {}$"),
        ({"permutation": [0], "sign": [1]}, [1], r"observations\.x\.sign: unknown key\. Did you mean 'signs'\?"),
        ({"permutation": [0], "signs": [0]}, [1], r"observations\.x\.signs\[0\]: Input should be -1 or 1, got 0$"),
    ],
)
def test_mirror_image_that_does_not_fit_its_entry_is_refused_in_one_line(
    kind: object, shape: list[int], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=rf"^env\.symmetry\.{message}") as error:
        make_env(tmp_path, with_entry(kind), shapes={"x": shape})
    assert len(str(error.value).splitlines()) == 1


def test_entries_and_terms_that_are_missing_or_unknown_are_named(tmp_path: Path) -> None:
    symmetry = {"observations": {"robot/qpos": "joints", "robot/qvell": "joints"}, "actions": {"walk": "joints"}}
    with pytest.raises(ConfigError) as error:
        make_env(tmp_path, symmetry)
    assert str(error.value).splitlines() == [
        "env.symmetry.actions: unknown action term 'walk'. Known: move",
        "env.symmetry.actions: needs every action term, and lacks move",
        "env.symmetry.observations: unknown entry of the flat observation 'robot/qvell'. Did you mean 'robot/qvel'? "
        "Known: robot/qf, robot/qpos, robot/qvel",
        "env.symmetry.observations: needs every entry of the flat observation, and lacks robot/qf, robot/qvel",
    ]


@pytest.mark.parametrize(
    ("action", "kind", "message"),
    [
        (MOVE, "vector", r"^env\.symmetry\.actions\.move: is of 3 components, the action has 12$"),
        (MOVE, "action", r"^env\.symmetry\.actions\.move: 'action' is for entries of the observation$"),
        (
            {"func": "QposTerm"},
            "joints",
            r"^env\.symmetry\.actions: the limits of component 0 are \[-1, 0\.5\], .* component 3, are \[-1, 1\]: mirr",
        ),
        (
            {"func": "QposDenormalizedTerm"},
            "joints",
            r"^env\.symmetry\.actions\.move: FL_hip's offset is -0\.25, and that of its mirror image, FR_hip, is -?0: ",
        ),
    ],
)
def test_action_whose_mirror_image_would_not_be_its_mirror_image_is_refused(
    action: dict[str, Any], kind: str, message: str, tmp_path: Path
) -> None:
    symmetry: dict[str, Any] = {**SYMMETRY, "actions": {"move": kind}}
    narrow = {'FL_hip" axis="1 0 0" range="-1 1"': 'FL_hip" axis="1 0 0" range="-1 0.5"'}
    with pytest.raises(ConfigError, match=message):
        make_env(tmp_path, symmetry, action, changes=narrow)


def test_last_action_is_mirrored_like_an_action_of_several_terms(tmp_path: Path) -> None:
    entries = {"last": "action", "robot/qf": "keep", "robot/qpos": "keep", "robot/qvel": "keep"}
    pole = {"permutation": [0], "signs": [-1]}
    symmetry = {"observations": entries, "actions": {"cart": "keep", "pole": pole}}
    actions = {
        name: {"func": "DeltaQposTerm", "params": {"part_name": part}}
        for name, part in {"cart": "arm", "pole": "hand"}.items()
    }
    last = {"func": f"{__name__}.numbers", "params": {"shape": [4]}}
    env = EmbodiedEnv(
        cart_cfg(1, {"actions": actions, "observations": {"last": last}, "symmetry": symmetry}, (), ["tests"])
    )
    assert env.mirror_map().action.signs.tolist() == [1, -1]
    assert env.mirror_map().obs.signs[:4].tolist() == [1, -1, 1, -1]  # a history of two


def test_environment_without_the_block_has_no_map(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^no mirror map: the config of EmbodiedEnv has no 'env\.symmetry'$"):
        make_env(tmp_path, None).mirror_map()


def test_block_comes_back_from_plain_data(tmp_path: Path) -> None:
    blocks = [{"links": [".*_foot"]}, {"grid": [2, 3]}, {"permutation": [0], "signs": [-1]}, {"joints": [".*"]}, "keep"]
    symmetry = {"observations": {str(i): block for i, block in enumerate(blocks)}, "actions": {"move": "joints"}}
    data = {"robot": robot_data(quadruped(tmp_path)), "env": {"actions": {"move": MOVE}, "symmetry": symmetry}}
    cfg = config_to_cfg(data)
    again = config_to_cfg({**data, "env": {**data["env"], "symmetry": to_dict(cfg)["symmetry"]}})
    assert again.symmetry == cfg.symmetry
