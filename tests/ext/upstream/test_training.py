import copy
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from embodichain.agents.rl.run_config import load_checkpoint_config, load_run_config, with_scene
from embodichain.ext.upstream.training import convert_training
from embodichain.utils import ConfigError
from scripts.upstream_configs import main
from tests.agents.rl.fakes import CART_POLE_ENV, tiny_config, write_config
from tests.lab.layouts import env_0_3_0, train_0_2_4
from tests.lab.originals import CART_POLE, CART_POLE_TRAIN_GRPO


def modern(data: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    """Return the data in the present layout, and the warning's list of what became what."""
    found = convert_training(copy.deepcopy(data))
    return found, capsys.readouterr().err.partition("(deprecated), read as: ")[2].strip()


@pytest.mark.parametrize(
    ("old", "new", "warnings"),
    [
        (
            {"runtime": {"cuda": False, "rollout_steps": 8}},
            {"trainer": {"device": "cpu", "buffer_size": 8}},
            "runtime -> trainer, trainer.cuda False -> trainer.device 'cpu', "
            "trainer.rollout_steps -> trainer.buffer_size",
        ),
        (
            {"trainer": {"cuda": True, "gpu_id": 1}},
            {"trainer": {"device": "cuda:1", "gpu_id": 1}},
            "trainer.cuda True -> trainer.device 'cuda:1'",
        ),
        (
            {"policy": {"name": "actor_critic", "cfg": {"normalize_obs": True}}},
            {"policy": {"name": "actor_critic", "normalize_obs": True}},
            "policy.cfg.normalize_obs -> policy.normalize_obs",
        ),
        (
            {"policy": {"name": "actor_only", "actor": {"type": "mlp", "hidden_sizes": [8], "activation": "elu"}}},
            {
                "policy": {
                    "name": "actor_only",
                    "actor": {"type": "mlp", "network_cfg": {"hidden_sizes": [8], "activation": "elu"}},
                }
            },
            "policy.actor.hidden_sizes -> policy.actor.network_cfg.hidden_sizes, "
            "policy.actor.activation -> policy.actor.network_cfg.activation",
        ),
    ],
)  # fmt: skip
def test_older_layout_is_read_with_a_warning(
    old: dict[str, Any], new: dict[str, Any], warnings: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert modern(old, capsys) == (new, warnings)


def test_present_layout_stays_as_it_is_without_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert modern(tiny_config(), capsys) == (tiny_config(), "")


def test_keys_of_a_users_policy_are_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    config = {"policy": {"name": "mine", "cfg": {"width": 3}, "actor": {"hidden_sizes": [3]}}}
    assert modern(config, capsys) == (config, "")


@pytest.mark.parametrize(
    ("old", "problem"),
    [
        ({"runtime": {}, "trainer": {}}, "runtime: is another form of 'trainer'"),
        (
            {"trainer": {"rollout_steps": 3, "buffer_size": 4}},
            "trainer.rollout_steps: is another form of 'trainer.buffer_size'",
        ),
        ({"trainer": {"cuda": True, "device": "cpu"}}, "trainer.cuda: is another form of 'trainer.device'"),
        (
            {"env": {"id": "X"}, "trainer": {"gym_config": "env.json"}},
            "env: is another form of 'trainer.gym_config'",
        ),
        (
            {"policy": {"name": "vla", "action_dim": 1, "cfg": {"action_dim": 2}}},
            "policy.cfg.action_dim: is another form of 'policy.action_dim'",
        ),
    ],
)  # fmt: skip
def test_old_and_new_key_together_are_an_error(old: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        convert_training(old)
    assert str(caught.value) == f"{problem}, which is given too"


def test_malformed_blocks_are_left_to_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    for config in ({"trainer": 3, "policy": []}, {"policy": {"name": "actor_critic", "cfg": 3, "actor": 4}}):
        assert modern(config, capsys) == (config, "")


def test_steps_of_an_old_file_are_those_of_the_overridden_size(tmp_path: Path) -> None:
    config = tiny_config(trainer__num_envs=8, trainer__total_timesteps=1024, algorithm__cfg__num_mini_batches=4)
    del config["trainer"]["iterations"], config["algorithm"]["cfg"]["batch_size"]
    run = load_run_config(write_config(tmp_path, config), ["trainer.num_envs=2", "trainer.buffer_size=16"])
    assert run.trainer.iterations * 2 * 16 == 1024
    assert run.algorithm.batch_size == 2 * 16 / 4


def inline(cfg: dict[str, Any], env_id: str = "PushCubeRL") -> dict[str, Any]:
    """Return a training config with the environment's inside."""
    return tiny_config(trainer__gym_config=None, trainer__num_envs=None) | {"env": {"id": env_id, "cfg": cfg}}


def test_inline_environment_is_read_and_overridden(tmp_path: Path) -> None:
    path = write_config(tmp_path, inline({"num_envs": 3, "extensions": {"success_threshold": 0.1}}))
    run = load_run_config(path, ["env.rewards.reach.weight=2", "trainer.gym_config.max_episode_steps=7"])
    assert (run.env_id, run.env.num_envs, run.env.max_episode_steps) == ("PushCubeRL", 3, 7)
    env = with_scene(run.env, "test")
    assert env.rewards["reach"].weight == 2
    assert env.extensions == {"success_threshold": 0.1}
    assert load_run_config(path, ["trainer.num_envs=2"]).env.num_envs == 2
    assert load_run_config(path, [f"trainer.gym_config={CART_POLE_ENV}", "trainer.num_envs=2"]).env_id == "CartPoleRL"
    assert load_checkpoint_config(json.loads(json.dumps(run.resolved))) == run


def test_table_names_what_loads_and_why_the_others_do_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = train_0_2_4(CART_POLE_TRAIN_GRPO)
    train["trainer"] |= {"gym_config": "tasks/cart/env.json", "device": "cuda:0"}
    program = {"id": "Mine-v1", "embodiment": {}, "task_program": {}}
    files: dict[str, Any] = {
        "tasks/cart/env.json": env_0_3_0(CART_POLE),
        "tasks/cart/agents/grpo.json": train,
        "tasks/wrong.json": CART_POLE | {"nonsense": 1, "robots": 2},
        "tasks/program/task.json": program,
        "twice/task.json": program,
        "tasks/notes.json": {"other": 1},
        "tasks/code.py": "raise SystemExit",
    }
    wheel = tmp_path / "some-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, json.dumps(content))
    main([str(wheel)])
    assert capsys.readouterr().out.splitlines() == [
        "some-1.0-py3-none-any.whl: 2 of 4 configs load",
        "  tasks/cart/agents/grpo.json: loads: grpo with the policy actor_only on CartPoleRL: 1000 iterations x 1024 "
        "steps x 64 environments = 65,536,000 environment steps",
        "  tasks/cart/env.json: loads: CartPoleRL with terms: 1 observation, 1 reward, 0 event, 1 action",
        "  tasks/program/task.json: refused: embodiment: belongs to EmbodiChain's task programs, which this "
        "package does not have: a task here is an environment config with terms (docs/index.md)",
        "  tasks/wrong.json: refused: nonsense: unknown key. Did you mean 'scene'? (and 1 more lines)",
    ]
