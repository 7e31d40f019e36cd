"""Configs by path, folder and name."""

import json
from pathlib import Path

import pytest

from embodichain.agents.rl.config.named import find_config, find_named_file, shipped_configs
from embodichain.utils import ConfigError, doors

pytestmark = pytest.mark.usefixtures("own_folder")


def write(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("{}", encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("push_cube", "push_cube/train_config_quickstart.json"),
        ("push_cube/grpo", "push_cube/train_config_grpo.json"),
        ("push_cube/train_config", "push_cube/train_config.json"),
        ("push_cube/ppo", "push_cube/train_config_quickstart.json"),  # the algorithm's first
        ("cart_pole", "basic/cart_pole/train_config_quickstart.json"),
        ("basic/cart_pole/grpo", "basic/cart_pole/train_config_grpo.json"),
        ("pendulum", "gymnasium/pendulum/train_config_ppo.json"),
        ("push_colored_cube", "push_colored_cube/train_config.json"),
        ("PushCubeRL", "push_cube/train_config_quickstart.json"),
        ("PickCubeRL/sac", "pick_cube/train_config_sac_sparse.json"),  # the algorithm's only one
        ("gymnasium:Pendulum-v1", "gymnasium/pendulum/train_config_ppo.json"),
    ],
)
def test_name_of_a_shipped_config_is_its_file_and_is_logged(
    name: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert find_config(name) == doors.TASK_CONFIGS / file
    assert capsys.readouterr().err == f"[INFO] config: {doors.TASK_CONFIGS / file}\n"


def test_path_of_the_documentation_is_the_shipped_file(capsys: pytest.CaptureFixture[str]) -> None:
    path = "configs/agents/rl/reach/train_config_sac.json"
    assert find_config(path) == doors.TASK_CONFIGS / "reach/train_config_sac.json"
    assert capsys.readouterr().err == f"[INFO] config: {doors.TASK_CONFIGS / 'reach/train_config_sac.json'}\n"
    write(path)
    assert find_config(path) == Path(path)


def test_every_shipped_config_is_found_by_its_own_name() -> None:
    assert {find_config(config.name) for config in shipped_configs()} == set(
        doors.TASK_CONFIGS.rglob("train_config*.json")
    )


def test_path_is_itself_and_comes_before_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    write("own", "cart_pole")
    assert find_config("own") == Path("own")
    assert find_config("cart_pole") == Path("cart_pole")
    assert find_config("absent.json") == Path("absent.json")  # reported by whoever reads it
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("file", ["train.json", "train_config.yaml", "train_config_own.yml"])
def test_folder_is_the_one_training_config_in_it(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(f"reach/{file}", "reach/gym_config.json", "reach/trained.txt")
    assert find_config("reach") == Path("reach") / file
    assert capsys.readouterr().err == f"[INFO] config: reach/{file}\n"


def test_folder_with_several_configs_or_none_is_an_error() -> None:
    write("own/train_config.json", "own/train_config_sac.json", "empty/gym_config.json")
    listed = r"own: has several configs, name one: own/train_config\.json, own/train_config_sac\.json"
    with pytest.raises(ConfigError, match=listed):
        find_config("own")
    with pytest.raises(ConfigError, match=r"empty: a folder without a file train\*\.json"):
        find_config("empty")


def test_unknown_name_is_one_line_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError) as caught:
        find_config("push_cub")
    tasks = ", ".join(sorted({config.task for config in shipped_configs()}))
    assert str(caught.value) == (
        "'push_cub': no such file or folder, and no shipped config of this name. Did you mean 'push_cube'? Shipped: "
        f"{tasks}; 'embodichain list envs' says how to train each task"
    )


def test_named_file_is_looked_for_in_four_places(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("a/b")
    write("x.json", "a/x.json", "a/b/x.json", "a/b/y.json", "a/y.json", "a/z.json")
    assert find_named_file("x.json", folder, "place") == Path("x.json")
    assert "place: the working directory's x.json is used, not a/b/x.json" in capsys.readouterr().err
    assert find_named_file("y.json", folder, "place") == Path("a/b/y.json")
    assert find_named_file("z.json", folder, "place") == Path("a/z.json").absolute()
    shipped = "configs/agents/rl/reach/gym_config.json"
    assert json.loads(find_named_file(shipped, folder, "place").read_text(encoding="utf-8"))["id"] == "ReachRL"
    with pytest.raises(ConfigError, match=r"^place: no such file: .*/absent\.json or .*/a/b/absent\.json"):
        find_named_file("absent.json", folder, "place")
    assert not capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "some_folder"])
def test_folder_in_place_of_a_file_that_a_config_names_is_said(name: str) -> None:
    write("some_folder/b/x.json")
    with pytest.raises(ConfigError) as caught:
        find_named_file(name, Path("some_folder"), "place")
    assert str(caught.value) == f"place: must be a file, got the folder '{name}'"
