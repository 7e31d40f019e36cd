"""An installed package adds a task with its terms, a network, an algorithm and a command by entry points."""

from pathlib import Path

import pytest

from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import tiny_config, write_config
from tests.pages import run_all, shell_variables

CODE = '''
from torch import nn

from embodichain.agents.rl.algo import PPO

from embodichain.commands import Command
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from embodichain.lab.gym.registry import register_env


@register_env("TheirCartRL", max_episode_steps=20, override=True)
class TheirCart(CartPoleEnv):
    """A cart of theirs."""


def their_bonus(env, obs, action, info):
    """A reward term of theirs."""
    return info["elapsed_steps"] * 0.0


class Linear(nn.Linear):
    """A network of theirs."""


class TheirPPO(PPO):
    """An algorithm of theirs."""


HELLO = Command("their_package.hello", "Say hello.")
'''
HELLO = """
EXAMPLES = ("--name you",)


def add_arguments(parser):
    parser.add_argument("--name", default="world")


def run(args):
    print(f"hello {args.name}")
    return 0
"""
ENTRY_POINTS = """
[embodichain.tasks]
TheirCartRL = their_package
[embodichain.networks]
their_linear = their_package:Linear
[embodichain.algorithms]
their_ppo = their_package:TheirPPO
[embodichain.commands]
hello = their_package:HELLO
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder of Python's path with the package and its metadata, as an installation writes them."""
    site = tmp_path / "site"
    for folder in ("their_package", "their_package-1.0.dist-info"):
        (site / folder).mkdir(parents=True)
    (site / "their_package/__init__.py").write_text(CODE, encoding="utf-8")
    (site / "their_package/hello.py").write_text(HELLO, encoding="utf-8")
    info = site / "their_package-1.0.dist-info"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    return site


@pytest.mark.e2e
def test_package_adds_task_network_algorithm_and_command(installed: Path) -> None:
    network = {"type": "their_linear", "network_cfg": {"bias": False}}
    policy = {"name": "actor_critic", "actor": network, "critic": network}
    config = tiny_config(policy=policy, algorithm__name="their_ppo", trainer__enable_eval=False)
    config["trainer"]["gym_config"] = load_json(config["trainer"]["gym_config"])
    config["trainer"]["gym_config"]["id"] = "TheirCartRL"
    config["trainer"]["gym_config"]["env"]["rewards"]["bonus"] = {"func": "their_package.their_bonus"}
    write_config(installed.parent, config)
    commands = ("train train_config.json", "hello --name you", "--help", "list algos")
    runs = [(str(installed.parent), f"embodichain {words}") for words in commands]
    environment = shell_variables(installed.parent) | {"PYTHONPATH": str(installed)}
    trained, said, helped, listed = run_all(runs, environment, installed.parent)
    assert trained[0] == 0, trained[1]
    assert said == (0, "hello you\n")
    assert "Say hello." in helped[1]
    assert "their_ppo" in listed[1]
