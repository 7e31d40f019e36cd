"""EmbodiChain's RL tutorial, block by block: the files of examples/embodichain_tutorial."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from embodichain.agents.rl.checkpoint.files import load_checkpoint
from tests.pages import REPOSITORY, run_all, shell_variables, write_files

pytestmark = pytest.mark.e2e

TRAIN = "python -m embodichain.agents.rl.train --config"
COMMANDS = [
    f"{TRAIN} inline.json",
    f"{TRAIN} oldest.json",
    "python my_train.py --config my_train.json",
    "embodichain eval latest --episodes 8",
    "embodichain export latest",
    "embodichain resume latest trainer.iterations=12",
    f"{TRAIN} inline.json algorithm.name=my_algo 'algorithm.cfg={{}}' "
    "'trainer.import_modules=[\"my_rl.algorithm\"]' --allow-import my_rl",
    f'{TRAIN} inline.json \'policy={{"name": "my_policy"}}\' '
    "'trainer.import_modules=[\"my_rl.policy\"]' --allow-import my_rl",
    f"{TRAIN} my_task.json --allow-import my_rl",
]

# The interfaces of the tutorial of 2025, in the classes that it tells to write.
OLDER = {
    "older/__init__.py": "",
    "older/policy.py": """
from embodichain.agents.rl.models import Policy, register_policy


@register_policy("older_policy")
class OlderPolicy(Policy):
    def __init__(self, obs_space, action_space, device, config):
        super().__init__()

    def get_action(self, obs, deterministic=False):
        return obs, obs, obs

    def get_value(self, obs):
        return obs

    def evaluate_actions(self, obs, actions):
        return obs, obs, obs
""",
    "older/algorithm.py": """
from embodichain.agents.rl.algo import BaseAlgorithm, register_algo


@register_algo("older_algo")
class OlderAlgorithm(BaseAlgorithm):
    def __init__(self, cfg, policy):
        self.buffer = None

    def initialize_buffer(self, num_steps, num_envs, obs_dim, action_dim):
        pass

    def collect_rollout(self, env, policy, obs, num_steps, on_step_callback=None):
        return {}

    def update(self):
        return {"loss": 0.0}
""",
}
# Module -> what is changed on the command line, and what the line says.
REFUSED = {
    "older.policy": ('\'policy={"name": "older_policy"}\'', "OlderPolicy: lacks forward("),
    "older.algorithm": ('\'algorithm={"name": "older_algo", "cfg": {}}\'', "OlderAlgorithm"),
}


@dataclass(frozen=True)
class Tried:
    """Results of the commands, and of the refused interfaces."""

    folder: Path
    results: dict[str, tuple[int, str]]

    def checkpoint(self, exp_name: str, number: int = 0) -> dict[str, object]:
        """Return what the last checkpoint of a run holds; of the runs of that name, by their number."""
        run = sorted(self.folder.glob(f"outputs/{exp_name}_*"))[number]
        latest = json.loads((run / "checkpoints/latest.json").read_text(encoding="utf-8"))
        return load_checkpoint(run / "checkpoints" / latest["file"])


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    folder = tmp_path_factory.mktemp("tutorial")
    shutil.copytree(REPOSITORY / "examples/embodichain_tutorial", folder, dirs_exist_ok=True)
    write_files(OLDER, folder)
    by_hand = folder / "my_train.json"
    text = by_hand.read_text(encoding="utf-8")
    assert "[640, 480]" in text
    by_hand.write_text(text.replace("[640, 480]", "[64, 48]"), encoding="utf-8")  # half a minute less of drawing
    (folder / "configs").symlink_to(REPOSITORY / "configs")
    refused = [
        f"python -m embodichain.agents.rl.train --config inline.json {change} "
        f"'trainer.import_modules=[\"{module}\"]' --allow-import older"
        for module, (change, _) in REFUSED.items()
    ]
    commands = [*COMMANDS, *refused]
    results = run_all([(str(folder), command) for command in commands], shell_variables(folder), folder)
    return Tried(folder, dict(zip([*COMMANDS, *REFUSED], results, strict=True)))


@pytest.mark.parametrize("command", COMMANDS)
def test_documented_command_ends_with_0(command: str, tried: Tried) -> None:
    code, output = tried.results[command]
    assert code in (0, None), output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("exp_name", "number", "steps"),
    # iterations x steps x environments
    [
        ("inline", 0, 2 * 64 * 4),
        ("inline", 1, 2 * 64 * 4),  # the algorithm
        ("inline", 2, 2 * 64 * 4),  # the policy
        ("oldest", 0, 2 * 64 * 4),
        ("my_task", 0, 2 * 64 * 4),
        ("by_hand", 0, 12 * 64 * 16),  # 10, and 2 after the resume
    ],
)
def test_training_saves_what_it_reached(exp_name: str, number: int, steps: int, tried: Tried) -> None:
    assert tried.checkpoint(exp_name, number)["global_step"] == steps


def test_script_hands_its_writer_the_scalars_of_the_documented_tags(tried: Tried) -> None:
    (run,) = tried.folder.glob("outputs/by_hand_*")
    tags = set(EventAccumulator(str(run / "logs/by_hand")).Reload().Tags()["scalars"])
    assert tags >= {"charts/SPS", "charts/episode_reward_avg_100", "charts/episode_length_avg_100"}
    assert tags >= {"eval/avg_reward", "eval/avg_length", "eval/success_rate", "train/policy_loss", "rewards/upright"}


def test_script_evaluates_with_its_events(tried: Tried) -> None:
    # 1,024 steps an iteration: the first ends at or past 5,000 and 10,000 are 5,120 and 10,240, which is the last.
    videos = sorted(path.name for path in tried.folder.glob("outputs/videos/eval/*.mp4"))
    assert videos == ["main_cam_step_10240.mp4", "main_cam_step_5120.mp4"]


def test_users_algorithm_logs_what_its_update_returns(tried: Tried) -> None:
    run = sorted(tried.folder.glob("outputs/inline_*"))[1]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert all({"train/loss", "train/value_loss"} <= set(row) for row in rows)
    state = tried.checkpoint("inline", 1)["algorithm"]
    assert isinstance(state, dict)
    assert set(state) == {"optimizer"}


@pytest.mark.parametrize("module", REFUSED)
def test_older_interface_is_refused_by_one_line(module: str, tried: Tried) -> None:
    code, output = tried.results[module]
    assert code in (1, 2), output
    (line,) = [line for line in output.splitlines() if line.startswith("error: ")]
    assert REFUSED[module][1] in line
