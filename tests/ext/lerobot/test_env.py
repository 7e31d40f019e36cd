"""Our tasks as LeRobot's evaluation sees them, and the folder that its EnvHub loads."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from embodichain.agents.rl.train import train_from_config
from embodichain.cli import main
from embodichain.ext.lerobot.env import LeRobotVectorEnv, export_lerobot_env, make_lerobot_env
from embodichain.lab.gym.utils.gym_utils import config_to_cfg
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import CART_POLE_ENV, CONFIGS, tiny_config, write_config

COLOURED = CONFIGS / "agents/rl/push_colored_cube"


@pytest.fixture
def env() -> Iterator[LeRobotVectorEnv]:
    env = make_lerobot_env(load_json(CART_POLE_ENV) | {"max_episode_steps": 5}, 3)
    yield env
    env.close()


def numbers(obs: dict[str, Any]) -> np.ndarray:
    values: np.ndarray = obs["environment_state"]
    return values


def test_observation_has_the_names_and_types_that_lerobot_reads(env: LeRobotVectorEnv) -> None:
    obs, _ = env.reset(seed=[0, 1, 2], options={"lerobot_new_rollout": True})

    assert obs["agent_pos"].shape == (3, 2)
    assert {value.dtype for value in obs.values()} == {np.dtype(np.float32)}
    assert env.observation_space.contains(obs)


def test_seed_is_an_episodes_number_for_any_num_envs(env: LeRobotVectorEnv) -> None:
    three = numbers(env.reset(seed=[4, 5, 6])[0])
    one = make_lerobot_env(load_json(CART_POLE_ENV), 1)
    try:
        for number in (4, 5, 6):
            np.testing.assert_array_equal(numbers(one.reset(seed=[number])[0])[0], three[number - 4])
    finally:
        one.close()
    assert not np.array_equal(three[0], three[1])
    np.testing.assert_array_equal(numbers(env.reset(seed=4)[0]), three)
    assert not np.array_equal(numbers(env.reset()[0]), three)  # the next ones


def test_episode_ends_at_its_limit_and_tells_success(env: LeRobotVectorEnv) -> None:
    env.reset(seed=[0, 1, 2])
    (limit, *_) = env.call("_max_episode_steps")
    ends = []
    for _ in range(limit):
        _, reward, terminated, truncated, infos = env.step(np.zeros((3, 1), np.float32))
        ends.append((terminated | truncated).all())
        assert reward.shape == (3,)
        assert infos["is_success"].dtype == bool

    assert ends == [False, False, False, False, True]
    assert infos["final_info"]["is_success"].shape == (3,)


def test_each_environment_has_a_task_an_image_and_nothing_else(env: LeRobotVectorEnv) -> None:
    env.reset(seed=0)
    images = env.call("render")

    assert env.get_attr("task") == env.call("task_description") == ("", "", "")
    assert [image.shape for image in images] == [(240, 320, 3)] * 3
    assert env.metadata["render_fps"] == round(1 / env.env.step_dt)
    with pytest.raises(AttributeError, match="has no 'envs' of each environment"):
        env.call("envs")


def test_only_files_of_an_earlier_export_are_replaced(tmp_path: Path) -> None:
    first = export_lerobot_env(str(COLOURED / "train_config.json"), tmp_path)
    assert export_lerobot_env(str(COLOURED / "train_config.json"), tmp_path) == first
    (tmp_path / "README.md").write_text("my notes")
    with pytest.raises(ConfigError, match=r"README\.md: exists and is not from an earlier export"):
        export_lerobot_env(str(COLOURED / "train_config.json"), tmp_path)
    assert (tmp_path / "README.md").read_text() == "my notes"


def test_run_is_exported_as_its_training_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    summary = train_from_config(tiny_config(), overrides=["env.rewards.calm.weight=0.25"])
    for target in ("latest", f"{summary['run_folder']}/best"):
        files = export_lerobot_env(target, tmp_path / "hub")

        scope: dict[str, Any] = {}
        exec(files[0].read_text(encoding="utf-8"), scope)
        assert config_to_cfg(scope["CONFIG"]).rewards["calm"].weight == 0.25


def test_environments_without_a_robot_of_ours_are_refused(tmp_path: Path) -> None:
    gym_config = {"id": "gymnasium:Pendulum-v1"}
    config = write_config(tmp_path, tiny_config(trainer__gym_config=gym_config, trainer__enable_eval=False))
    with pytest.raises(ConfigError, match=r"'gymnasium:Pendulum-v1' is Gymnasium's: LeRobot takes it as it is"):
        export_lerobot_env(config, tmp_path / "hub")
    gym_config = {"id": "SceneRL", "scene": "gymnasium/hopper.xml"}
    scene = write_config(tmp_path, tiny_config(trainer__gym_config=gym_config, trainer__enable_eval=False))
    with pytest.raises(ConfigError, match="'SceneRL' has no robot"):
        export_lerobot_env(scene, tmp_path / "hub")


def test_lerobots_own_loader_and_evaluation_take_it(tmp_path: Path) -> None:
    envs = pytest.importorskip("lerobot.envs.utils", reason="needs LeRobot")
    evaluation = pytest.importorskip("lerobot.scripts.lerobot_eval", reason="needs LeRobot")
    files = export_lerobot_env(str(COLOURED / "train_config.json"), tmp_path / "hub")
    module = envs._load_module_from_path(str(files[0]))
    made = envs._normalize_hub_result(envs._call_make_env(module, n_envs=2, use_async_envs=False, cfg=None))
    ((suite,),) = (made.values(),)
    env = suite[0]

    class Pushes(torch.nn.Module):
        """Moves forward; asserts what it is given."""

        def reset(self) -> None: ...

        def select_action(self, batch: dict[str, Any]) -> torch.Tensor:
            assert batch["observation.images.front"].shape == (2, 3, 64, 64)
            assert batch["observation.state"].shape == (2, 9)
            assert all(text.startswith("push the ") for text in batch["task"])
            return torch.ones(2, env.single_action_space.shape[0])

    def same(x: Any) -> Any:
        return x

    try:
        images: list[np.ndarray] = []
        result = evaluation.rollout(
            env,
            Pushes(),
            same,
            same,
            same,
            same,
            seeds=[0, 1],
            render_callback=lambda env: images.append(np.stack(env.call("render"))),
        )
        assert result["done"][:, -1].all()
        assert result["success"].shape == result["reward"].shape
        assert images[0].shape == (2, 240, 320, 3)
    finally:
        envs.close_envs(made)


def test_docs_page_writes_the_folder_and_steps_it_without_a_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (CONFIGS.parent / "docs/watching.md").read_text(encoding="utf-8")
    section = page.partition("## The task, for LeRobot's evaluation\n")[2].partition("\n## ")[0]
    (tmp_path / "configs").symlink_to(CONFIGS)
    monkeypatch.chdir(tmp_path)

    (command,) = re.findall(r"^    embodichain (export .*)$", section, re.MULTILINE)
    assert main(command.split()) == 0
    assert capsys.readouterr().out.split() == ["hub/env.py", "hub/requirements.txt", "hub/README.md"]
    exec(section.partition("```python\n")[2].partition("```")[0], {})
    assert re.match(r"\('push the \w+ cube', 'push the \w+ cube'\) \(2, 9\) \['front'\]", capsys.readouterr().out)
