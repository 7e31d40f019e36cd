"""The commands that need no run: list, validate, completion; and train and resume."""

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl.checkpoint.saved_run import find_run, find_run_folder, names_run, settled
from embodichain.agents.rl.run_config import OWN_CONFIG
from embodichain.cli import COMMANDS, main, make_parser
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.sim.rendering.renderer import RenderingUnavailableError
from embodichain.utils import ConfigError, write_json
from tests.agents.rl.fakes import CART_POLE_ENV, tiny_config, write_config


def listed(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict[str, Any]]:
    assert main(["list", *argv, "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return rows


@pytest.mark.ext
def test_lists_have_a_line_about_each_registered_name(capsys: pytest.CaptureFixture[str]) -> None:
    envs = {row["name"]: row for row in listed(capsys, "envs")}
    assert envs["CartPoleRL"]["max_episode_steps"] == 500
    algos = {row["name"]: row for row in listed(capsys, "algos")}
    assert "gae_lambda" in algos["ppo"]["settings"]
    assert {"actor_critic", "actor_only"} <= {row["name"] for row in listed(capsys, "policies")}
    blocks = {row["name"]: row["block"] for row in listed(capsys, "terms")}
    assert (blocks["DeltaQposTerm"], blocks["randomize_robot_qpos"]) == ("actions", "events")
    # Of what is ours: other tests register things without a word about them.
    assert "pole" in envs["CartPoleRL"]["about"]
    assert algos["ppo"]["about"].startswith("Clipped PPO")


def test_list_of_tasks_says_how_to_train_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "envs"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    at = next(i for i, line in enumerate(lines) if line.startswith("PushCubeRL"))
    assert lines[at + 1 : at + 3] == [
        "embodichain train push_cube",
        "also: push_cube/train_config, push_cube/grpo, push_cube/sac",
    ]
    assert "embodichain bc push_colored_cube && embodichain train push_colored_cube" in lines
    assert "embodichain train pick_cube" in lines  # it can be cloned as well, and need not be
    at = next(i for i, line in enumerate(lines) if line.startswith("SceneRL"))
    assert lines[at].endswith(" A task adds the reward.")
    assert lines[at + 1] == OWN_CONFIG
    at = next(i for i, line in enumerate(lines) if line.startswith("gymnasium:Pendulum-v1"))
    assert lines[at + 1 : at + 3] == ["embodichain train pendulum", "also: pendulum/sac"]


@pytest.mark.ext
@pytest.mark.parametrize("command", ["train", "validate"])
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("SceneRL", f"a task with {OWN_CONFIG}"),
        (
            "gymnasium:Hopper-v5",
            "no shipped config trains this environment: write it into the trainer.gym_config.id of a training config "
            "(docs/gymnasium.md)",
        ),
    ],
)
def test_task_without_a_config_is_told_how_it_is_trained(
    command: str, name: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, name]) == 2
    assert capsys.readouterr().err == f"error: '{name}': {problem}\n"


@pytest.mark.ext
def test_without_a_kind_everything_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    places = [out.index(text) for text in ("# envs", "CartPoleRL", "# algos", "\nppo ", "# policies", "# terms")]
    assert places == sorted(places)
    assert main(["list", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["envs", "algos", "policies", "terms"]
    assert out.index("env.actions") < out.index("DeltaQposTerm") < out.index("env.observations")


@pytest.mark.ext
def test_users_terms_are_listed_by_the_paths_that_configs_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "listed_terms.py").write_text(
        "from embodichain.lab.gym.envs.managers import Functor\n"
        "from embodichain.lab.gym.envs.managers.rewards import success_reward\n"
        "def height(env, obs):\n    'Height, m.'\n"
        "class delayed(Functor):\n    'Delayed.'\n"
        "class theirs:\n    'Theirs.'\n    def __init__(self, cfg, env): pass\n"
        "def helper(value): pass\n"
        "def _private(env): pass\n"
        "class Number(int): pass\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    option = ("--import", "listed_terms", "--allow-import", "listed_terms")
    assert listed(capsys, "terms", *option)[-3:] == [
        {"name": "listed_terms.height", "about": "Height, m.", "block": None},
        {"name": "listed_terms.delayed", "about": "Delayed.", "block": None},
        {"name": "listed_terms.theirs", "about": "Theirs.", "block": None},
    ]
    assert "listed_terms" not in str(listed(capsys, "envs", *option))
    assert main(["list", "terms", *option]) == 0
    assert capsys.readouterr().out.splitlines()[-4] == "your own, which configs name by these paths"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--out", "scene.foo"], "--out: must end with one of .png, .jpg, .jpeg, .webp, got 'scene.foo'"),
        (["--size", "1000000", "64"], "--size: must be a whole number from 16 to 16384, got '1000000'"),
    ],
)
def test_image_that_cannot_be_written_or_rendered_is_refused(
    option: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["view", "cart_pole", *option])
    assert message in capsys.readouterr().err


def validated(capsys: pytest.CaptureFixture[str], code: int, *argv: str) -> str:
    assert main(["validate", *argv]) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.err


def test_valid_means_that_an_environment_makes_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path, tiny_config())
    first, changed, *_ = validated(capsys, 0, config).splitlines()
    tried = "; 13 environments were built, and made a step"
    assert first.endswith(tried)
    assert changed.endswith(": not as in its file")
    assert f"{tried}\n" in validated(capsys, 0, str(CART_POLE_ENV))
    error = validated(capsys, 2, config, 'policy.obs_groups={"actor": ["nope"]}')
    assert "error: policy.obs_groups.actor[0]: unknown entry or pattern 'nope'." in error
    error = validated(capsys, 2, config, "algorithm.cfg.symmetry={}")
    assert re.search(r"error: algorithm\.cfg\.symmetry: no mirror map: .* has no 'env\.symmetry'", error)
    near = f'env.rewards.near={{"func": "{__name__}.no_reward"}}'
    error = validated(capsys, 2, config, near, "--allow-import", __name__)
    assert "error: env.rewards.near: no_reward must return a tensor [N] = [13]" in error
    error = validated(capsys, 2, config, near.replace("no_reward", "nan_reward"), "--allow-import", __name__)
    assert "error: the reward 'near' has NaN after the first step" in error
    kick = {"func": f"{__name__}.late_mistake", "mode": "interval", "interval_step": [50, 60]}
    error = validated(capsys, 1, config, f'env.events={{"kick": {json.dumps(kick)}}}', "--allow-import", __name__)
    assert "takes no size" in error
    kick = {"func": f"{__name__}.push_all", "mode": "reset"}
    error = validated(capsys, 2, config, f'env.events={{"kick": {json.dumps(kick)}}}', "--allow-import", __name__)
    assert "error: env.events.kick: moves environments outside env_ids" in error


def nan_reward(env: Any) -> torch.Tensor:
    return torch.full((env.num_envs,), torch.nan)


def push_all(env: Any, env_ids: Any) -> None:
    env.robot.set_qvel(torch.ones(env.num_envs, 2))


def late_mistake(env: Any, env_ids: Any) -> None:
    raise TypeError("takes no size")


def no_reward(env: Any, obs: Any, action: Any, info: Any) -> None:
    """What a user forgets to return."""


@pytest.mark.parametrize("is_cause", [True, False])
def test_config_whose_images_cannot_be_drawn_is_not_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_cause: bool
) -> None:
    def fail(self: Any, *given: Any) -> Any:
        missing = RenderingUnavailableError("no OpenGL here")
        if is_cause:  # as a camera says it
            raise ConfigError("sensor 'front': no OpenGL here") from missing
        raise missing

    monkeypatch.setattr(EmbodiedEnv, "__init__", fail)
    out = validated(capsys, 0, "push_colored_cube/sac_images")
    assert "; not tried, since its images cannot be drawn here: " in out
    assert out.endswith("no OpenGL here\n")


@pytest.mark.ext
def test_environment_that_may_be_a_robot_is_not_built(capsys: pytest.CaptureFixture[str]) -> None:
    assert validated(capsys, 0, "gymnasium/pendulum").endswith("; not built: it is an environment of another library\n")


def test_wrong_configs_are_told_all_their_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path, tiny_config())
    assert main(["validate", config, "trainer.iterations=3"]) == 0
    # 3 iterations x 4 steps x 2 environments
    assert "valid. ppo with the policy actor_critic on CartPoleRL: 3 iterations" in (out := capsys.readouterr().out)
    assert "= 24 environment steps" in out
    assert main(["validate", str(CART_POLE_ENV)]) == 0
    assert "CartPoleRL with terms: 1 observation, 2 reward, 1 event, 1 action" in capsys.readouterr().out
    assert main(["validate", config, "trainer.num_evns=3", "algorithm.cfg.gamma=2"]) == 2
    err = capsys.readouterr().err
    assert "trainer.num_evns: unknown key. Did you mean 'num_envs'?" in err
    assert "algorithm.cfg.gamma: Input should be less than or equal to 1" in err
    assert main(["validate", str(CART_POLE_ENV), "trainer.seed=1"]) == 2
    assert "trainer: unknown key" in capsys.readouterr().err
    assert main(["validate", str(CART_POLE_ENV), "env.rewards.calm.weight=a"]) == 2
    assert "env.rewards.calm.weight: Input should be a valid number" in capsys.readouterr().err


@pytest.mark.ext
def test_completion_knows_commands_options_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    for shell in ("bash", "zsh", "tcsh"):
        assert main(["completion", shell]) == 0
        out = capsys.readouterr().out
        assert "doctor" in out
        assert "episodes" in out
    assert main(["completion", "bash"]) == 0
    assert "_shtab_embodichain_train_pos_0_COMPGEN=_shtab_compgen_files" in capsys.readouterr().out


def test_completion_without_its_extra_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "-m pip install 'shtab" in capsys.readouterr().err


EXAMPLES = [  # without a pattern of runs, a bundle and an exported folder
    (name, words)
    for name in COMMANDS
    for example in COMMANDS[name].load().EXAMPLES
    if name not in ("compare", "diff")
    and (words := example.partition(" > ")[0].split())
    and words[0].startswith(("latest", "best", "outputs/"))
    and "/export/" not in words[0]
]


@pytest.fixture
def two_runs(run_folder: Path) -> tuple[Path, Path]:
    """Return an older run, and one that saved last, whose best checkpoint is not its latest."""
    older = run_folder.with_name("push_cube_ppo_20260101_120000")
    shutil.copytree(run_folder, older)
    for folder in (older, run_folder):
        (latest,) = folder.glob("checkpoints/*_16.pt")
        shutil.copy(latest, latest.with_name("tiny_step_8.pt"))
        write_json(folder / "checkpoints/best.json", {"file": "tiny_step_8.pt", "step": 8})
    for path in older.glob("checkpoints/*.pt"):
        os.utime(path, (1, 1))
    return older.relative_to(Path.cwd()), run_folder.relative_to(Path.cwd())


@pytest.mark.parametrize(
    ("command", "words"), EXAMPLES, ids=lambda given: given if isinstance(given, str) else " ".join(given)
)
def test_run_of_an_example_is_found(command: str, words: list[str], two_runs: tuple[Path, Path]) -> None:
    args = make_parser((command,)).parse_args([command, *words])
    older, folder = two_runs
    target = args.resume if command == "resume" else args.target
    if target.startswith("outputs/"):
        folder = older.rename(Path(*Path(target).parts[:2]))
    assert names_run(target)
    assert find_run_folder(target) == folder
    assert find_run(target).folder == folder


@pytest.mark.parametrize("target", ["best", "latest/best", "latest/best/", "{last}/best"])
def test_best_is_the_best_checkpoint_of_the_last_run(target: str, two_runs: tuple[Path, Path]) -> None:
    _, last = two_runs
    target = target.format(last=last)
    best = last / "checkpoints/tiny_step_8.pt"
    assert find_run(target).checkpoint == best
    assert names_run(target)


def test_run_in_a_folder_of_that_name_is_meant_first(two_runs: tuple[Path, Path]) -> None:
    older, _ = two_runs
    older.rename("latest")
    for target, name in (("latest", "tiny_step_16.pt"), ("latest/best", "tiny_step_8.pt")):
        assert find_run(target).checkpoint == Path("latest/checkpoints") / name
        assert names_run(target)


def test_settled_name_has_the_date(two_runs: tuple[Path, Path]) -> None:
    _, last = two_runs
    undated = str(last)[: -len("_20260101_120000")]
    for name in ("latest", undated, str(last)):
        assert names_run(name)
        assert names_run(f"{name}/best")
        assert settled(name) == str(last)
        assert settled(f"{name}/best") == f"{last}/best"
    for name in (f"{last}/checkpoints/tiny_step_8.pt", "hf:user/name", "outputs/missing"):
        assert settled(name) == name


@pytest.mark.e2e
@pytest.mark.parametrize("target", ["best", "{last}/checkpoints/tiny_step_8.pt"])
def test_commands_that_read_logs_take_the_same_words(
    target: str, two_runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, last = two_runs
    assert main(["compare", "--metric", "charts/SPS", target.format(last=last)]) == 0
    assert "charts/SPS, last value" in capsys.readouterr().out
