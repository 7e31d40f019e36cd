"""``embodichain new task``: what it writes is a task that can be checked, tested, trained."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from embodichain.agents.rl.run_config import load_run_config
from embodichain.cli import main
from tests.commands.test_view import HOPPER

FOLDED_ARM = """<mujoco>
  <compiler angle="radian" autolimits="true"/>
  <default><joint axis="0 1 0" range="-1 1"/><geom size="0.02"/></default>
  <worldbody><body name="base"><geom/>
    <body name="upper" pos="0 0 0.1"><joint name="a"/><geom/>
      <body name="elbow" pos="0 0 0.9"><joint name="b"/><geom/>
        <body name="fore" pos="0 0 -0.4"><joint name="c"/><geom/>
          <body name="hand" pos="0 0 -0.4"><joint name="d"/><geom/></body>
        </body>
      </body>
    </body>
  </body></worldbody>
</mujoco>"""
"""An arm with its elbow 1 m from its base, and its hand 0.2 m."""

pytestmark = pytest.mark.usefixtures("own_folder")

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.e2e
def test_new_tasks_pass_their_own_tests_which_train_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "task", "tidy_up"]) == 0
    out = capsys.readouterr().out
    assert "embodichain trust tidy_up " in out
    assert "embodichain train tidy_up/train.json\n" in out
    files = {path.name for path in Path("tidy_up").iterdir()}
    assert files == {"README.md", "__init__.py", "env.json", "task.py", "test_task.py", "train.json", "schema"}
    for path in Path("tidy_up").glob("*.*"):
        assert "{{" not in path.read_text(encoding="utf-8")
    for kind in ("train", "env"):
        config = json.loads(Path(f"tidy_up/{kind}.json").read_text(encoding="utf-8"))
        schema = json.loads((Path("tidy_up") / config["$schema"]).read_text(encoding="utf-8"))
        assert list(Draft202012Validator(schema).iter_errors(config)) == []
    Path("hopper.xml").write_text(HOPPER)
    assert main(["new", "task", "tidy_hop", "--robot", "hopper.xml"]) == 0
    config = json.loads(Path("tidy_hop/env.json").read_text(encoding="utf-8"))
    assert (config["robot"]["fpath"], config["robot"]["fix_base"]) == (os.path.join("..", "hopper.xml"), False)
    assert list(config["env"]["actions"]) == ["joints", "controls"]
    # In another process, as a user does it; and the modules must not stay in this one.
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "pytest", "-q", "tidy_up", "tidy_hop", "-W", "error", "-p", "no:cacheprovider"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (result.returncode, result.stdout[-200:].splitlines()[-1][:8]) == (0, "6 passed"), result.stdout


@pytest.mark.e2e
def test_new_task_is_valid_without_the_folder_on_the_path(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # As the installed script has it, unlike `python -m`.
    here = {"", str(Path.cwd())}
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in here])
    assert main(["new", "task", "tidy_down"]) == 0
    path = list(sys.path)
    assert main(["validate", "tidy_down/train.json"]) == 2
    assert "pass --allow-import tidy_down" in capsys.readouterr().err
    own = ["--import", "tidy_down.task", "--allow-import", "tidy_down"]
    assert main(["validate", "tidy_down/env.json", *own]) == 0
    assert "TidyDownRL with terms" in capsys.readouterr().out
    assert main(["validate", "tidy_down/train.json", "--allow-import", "tidy_down"]) == 0
    assert "valid. ppo with the policy actor_critic on TidyDownRL" in capsys.readouterr().out
    assert sys.path == path


@pytest.mark.ext
@pytest.mark.parametrize(("config", "kept"), [("reach", "_COLOURS = ("), ("pick_cube", "def finger_problems(")])
def test_copied_task_has_its_configs_and_class(config: str, kept: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"tidy_{config}"
    assert main(["new", "task", name, "--from", config]) == 0
    assert "-m pytest" not in capsys.readouterr().out + Path(f"{name}/README.md").read_text(encoding="utf-8")
    assert {path.name for path in Path(name).iterdir()} == {
        *("README.md", "__init__.py", "env.json", "task.py", "train.json", "schema")
    }
    assert kept in (code := Path(f"{name}/task.py").read_text(encoding="utf-8"))
    assert "default_cfg" not in code
    assert "OpenDrawer" not in code
    own = load_run_config(f"{name}/train.json", allowed_imports=[name])
    theirs = load_run_config(config)
    assert own.env_id == "".join(part.capitalize() for part in name.split("_")) + "RL"
    assert own.resolved["algorithm"] == theirs.resolved["algorithm"]
    assert own.resolved["gym_config"]["env"] == theirs.resolved["gym_config"]["env"]
    for file in ("train.json", "env.json"):
        assert (Path(name) / json.loads(Path(name, file).read_text(encoding="utf-8"))["$schema"]).is_file()


@pytest.mark.ext
def test_last_link_of_a_folded_arm_is_moved(capsys: pytest.CaptureFixture[str]) -> None:
    Path("arm.xml").write_text(FOLDED_ARM)
    assert main(["new", "task", "tidy_arm", "--robot", "arm.xml"]) == 0
    assert "the link hand" in Path("tidy_arm/task.py").read_text(encoding="utf-8")
    train = json.loads(Path("tidy_arm/train.json").read_text(encoding="utf-8"))
    assert "record_camera" in train["trainer"]["events"]["eval"]
    capsys.readouterr()
    assert main(["validate", "tidy_arm/train.json", "--allow-import", "tidy_arm"]) == 0
    assert "softened" not in capsys.readouterr().err


@pytest.mark.ext
def test_goals_of_a_new_task_are_within_reach() -> None:
    Path("arm.xml").write_text(FOLDED_ARM)
    assert main(["new", "task", "tidy_goals", "--robot", "arm.xml"]) == 0
    env = json.loads(Path("tidy_goals/env.json").read_text(encoding="utf-8"))
    low, high = np.array(env["env"]["events"]["place_goal"]["params"]["position_range"])
    assert low[1] == high[1] == 0  # the arm moves in a plane
    assert (high - low)[[0, 2]].min() > 0.1
    rng = np.random.default_rng(0)
    tilts = rng.uniform(-1, 1, (4000, 3)).cumsum(axis=1)  # of the upper arm, and of the two parts of the lower arm
    lengths = np.array([0.9, -0.4, -0.4])
    reached = np.stack(((lengths * np.sin(tilts)).sum(1), 0.1 + (lengths * np.cos(tilts)).sum(1)), axis=1)
    goals = rng.uniform(low, high, (500, 3))[:, [0, 2]]
    distance = np.linalg.norm(goals[:, None] - reached, axis=2).min(axis=1)
    assert (distance < 0.05).mean() > 0.9


@pytest.mark.ext
def test_robot_below_the_usual_clearance_has_goals() -> None:
    part = '<body pos="0 0 0.015"><joint axis="0 1 0" range="-1 1"/><geom size="0.002"/>'
    arm = f"<body><geom size='0.002'/>{3 * part}{3 * '</body>'}</body>"
    Path("arm.xml").write_text(f'<mujoco><compiler angle="radian"/><worldbody>{arm}</worldbody></mujoco>')
    assert main(["new", "task", "tidy_ant", "--robot", "arm.xml"]) == 0
    env = json.loads(Path("tidy_ant/env.json").read_text(encoding="utf-8"))
    low, high = env["env"]["events"]["place_goal"]["params"]["position_range"]
    assert 0.02 < low[2] < high[2] < 0.05  # upright it is 4.5 cm high
    assert 0 < env["env"]["extensions"]["success_threshold"] < 0.5 * np.linalg.norm(np.subtract(high, low))


@pytest.mark.ext
def test_copied_task_takes_another_robot(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "task", "tidy_walk", "--from", "go2_flat", "--robot", "g1"]) == 0
    assert "embodichain validate tidy_walk/train.json    # says" in capsys.readouterr().out
    env = json.loads(Path("tidy_walk/env.json").read_text(encoding="utf-8"))
    assert (env["robot"]["uid"], env["robot"]["fpath"], env["robot"]["fix_base"]) == ("go2", "g1", False)
    stiffness = env["robot"]["drive_pros"]["stiffness"]
    assert stiffness["left_hip_pitch_joint"] == stiffness["right_hip_pitch_joint"]
    assert "symmetry" not in env["env"]  # of the other robot's joints, and silently wrong for as many of this one
    assert "feet_gait" in json.dumps(env["env"]["rewards"])


@pytest.mark.ext
def test_own_config_is_copied_however_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    shipped = REPOSITORY / "configs/agents/rl/basic/cart_pole"
    train, env = (json.loads((shipped / f"{name}_config.json").read_text()) for name in ("train", "gym"))
    Path("own").mkdir()
    shutil.copy(REPOSITORY / "embodichain/lab/sim/assets/cart_pole.xml", "own/arm.xml")
    env["robot"]["fpath"] = "arm.xml"
    train["trainer"]["gym_config"] = "env.json"
    Path("own/env.json").write_text(json.dumps(env, separators=(",", ":")))
    Path("own/train.json").write_text(json.dumps(train, separators=(",", ":")))
    assert main(["new", "task", "tidy_own", "--from", "own/train.json"]) == 0
    written = {name: json.loads(Path(f"tidy_own/{name}.json").read_text()) for name in ("train", "env")}
    assert written["train"]["trainer"]["gym_config"] == "env.json"
    assert written["env"]["id"] == "TidyOwnRL"
    assert Path("tidy_own", written["env"]["robot"]["fpath"]).is_file()
    Path("own/train.yaml").write_text(json.dumps(train))
    assert main(["new", "task", "tidy_yaml", "--from", "own/train.yaml"]) == 2
    assert "train.yaml is copied as it is written, which must be JSON" in capsys.readouterr().err


@pytest.mark.ext
def test_task_that_cannot_be_copied_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "task", "tidy_copy", "--from", "pendulum"]) == 2
    message = "--from pendulum: has no task of ours in a file of its own: copy "
    assert message in capsys.readouterr().err
    assert not Path("tidy_copy").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Tidy", "small letters, digits and underscores are needed"),
        ("../tidy", "small letters, digits and underscores are needed"),
        ("json", "Python has a module of this name already"),
        ("class", "and no keyword of Python"),
        ("a" * 300, "small letters, digits and underscores are needed"),
        ("push_cube", "there is a task PushCubeRL already"),
        ("taken", "taken: is there already"),
    ],
)
def test_name_that_cannot_be_used_is_an_error(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("taken").mkdir()
    assert main(["new", "task", name]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["taken"]
