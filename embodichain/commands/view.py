"""``embodichain view``: a config's scene or a robot's file in an image or in the browser, and agents without training.

Legend: ... any batch dimensions, A action size.
"""

import argparse
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from matplotlib.image import imsave
from tensordict import TensorDict

from embodichain.agents.rl.config.arguments import (
    add_allow_import,
    add_import,
    add_overrides,
    allowed_imports,
    apply_overrides,
    import_named_modules,
)
from embodichain.agents.rl.models import Policy
from embodichain.agents.rl.run_config import RunConfig, scene_cfg, with_scene
from embodichain.agents.rl.trainer import viewer
from embodichain.commands import arguments
from embodichain.commands.robot_files import SLIDE, format_changes, format_robot, names_robot, robot_task
from embodichain.commands.validate import read_config
from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.env_sources import TaskCfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.actions import QposDenormalizedTerm, QposTerm
from embodichain.lab.gym.envs.managers.record import View, record_camera_data
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.utils import ConfigError, raise_problems, reason_of, replace
from embodichain.utils.choices import sizes_of
from embodichain.utils.observations import entry_columns, entry_spaces

EXAMPLES = (
    "gym_config.json",
    "train_config.json --out scene.png --size 1280 960",
    "train_config.json robot.init_rot=[0,0,90] --viewer",
    "my_robot.xml --viewer",
)

_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
_NOTCHES = 200  # of a slider


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "config",
        type=Path,
        metavar="CONFIG",
        help=f"{arguments.CONFIG_HELP}; or an environment config's file; or a robot's model: MJCF, URDF, "
        "menagerie/<model>, or a bundled asset's name",
    )
    add_overrides(parser)
    parser.add_argument(
        "--viewer", action="store_true", help="in the browser, with a slider for each number of the action"
    )
    parser.add_argument(
        "--out", type=arguments.output_file_with(_IMAGE_SUFFIXES), metavar="FILE", help="the image (default: scene.png)"
    )
    parser.add_argument(
        "--seed", type=arguments.whole_number(0), default=1, help="of the episode that begins (default: 1)"
    )
    parser.add_argument("--size", nargs=2, type=arguments.pixels, metavar=("W", "H"), help="pixels (default: 960 720)")
    add_import(parser)
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Write the image and print observations and actions, or show the scene until Ctrl-C; return 0."""
    arguments.check_viewer(args)
    import_named_modules(args)
    path = args.out or Path("scene.png")
    is_robot = names_robot(str(args.config))
    opened = opened_robot if is_robot else opened_scene
    with opened(args.config, args.overrides, args.seed, allowed_imports(args)) as (env_id, env, view):
        changes = "\n".join(format_changes(env.sim.changes))
        text = format_robot(env) if is_robot else f"{format_spaces(env_id, env)}\n\n{changes}".rstrip()
        if args.viewer:
            print(text, flush=True)
            viewer.play_live(env, HandAgent(env), torch.device("cpu"), args.seed)
            return 0
        env.reset(seed=args.seed)
        with closing(View(env, tuple(args.size or (960, 720)), view)) as camera:
            image = camera.render()
    try:
        imsave(path, image)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--out {path}: cannot be written: {reason_of(error)}") from error
    print(f"{text}\n\nimage    {path}")
    return 0


@contextmanager
def opened_scene(
    path: Path, overrides: Sequence[str], seed: int, allowed_imports: Sequence[str]
) -> Iterator[tuple[str, EmbodiedEnv, dict[str, object]]]:
    """Yield the task's name, one environment of a training or environment config, and the config's camera.

    Nothing runs on a GPU, whatever the config says.
    """
    config = read_config(path, overrides, allowed_imports, device="cpu")
    cfgs: list[TaskCfg | None]
    if isinstance(config, RunConfig):
        env_id, cfg, cfgs = config.env_id, config.env, [config.env, config.eval_env]
    else:
        (env_id, cfg), cfgs = config, [config[1]]
    own = with_scene(cfg, "view").without_records()
    env = build_env(env_id, replace(own, num_envs=1, group_size=1, seed=seed))
    with closing(env):
        yield env_id, env, config_camera(cfgs)


@contextmanager
def opened_robot(
    file: Path, overrides: Sequence[str], seed: int, allowed_imports: Sequence[str]
) -> Iterator[tuple[str, EmbodiedEnv, dict[str, object]]]:
    """Yield a file's name, an environment with its robot alone on the ground, and the default camera."""
    data, problems = robot_task(str(file), {"func": "QposTerm"}), list[str]()
    apply_overrides(data, overrides, problems)
    raise_problems(problems)
    cfg = config_to_cfg(data, env_class=EmbodiedEnv, allowed_imports=allowed_imports)
    with closing(EmbodiedEnv(cfg.for_run(seed, 1, sim_device="cpu"))) as env:
        yield str(file), env, {}


def config_camera(configs: Iterable[TaskCfg | None]) -> dict[str, object]:
    """Return the parameters of the first recording event in some configs, or an empty dictionary."""
    for cfg in [own for cfg in configs if cfg is not None and (own := scene_cfg(cfg)) is not None]:
        for event in cfg.events.values():
            if isinstance(event.func, type) and issubclass(event.func, record_camera_data):
                return dict(event.params)
    return {}


def format_spaces(env_id: str, env: EmbodiedEnv) -> str:
    """Return a table of the observation's entries and of the action's numbers."""
    columns = entry_columns(env.single_observation_space)
    lines = [f"{env_id}: a step is {env.step_dt:g} s", "", "observation"]
    for name, space in entry_spaces(env.single_observation_space).items():
        part = columns.get(name)
        place = "image, not in the flat observation" if part is None else f"columns {part.start} to {part.stop - 1}"
        lines.append(f"  {name:28} {list(space.shape)!s:14} {place}")
    lines += ["", "action"]
    for i, number in enumerate(action_numbers(env)):
        low, high = number.commands
        what = f"{number.moves}: {number.meaning}: {low:.4g} to {high:.4g}" if number.moves else ""
        lines.append(f"  {i:3}  {number.term:20} [{number.low:g}, {number.high:g}]  {what}".rstrip())
    return "\n".join(lines)


class ZeroAgent(Policy):
    """Returns zero actions, of one environment's action space [A]."""

    def __init__(self, action_space: spaces.Box) -> None:
        super().__init__()
        self._size = action_space.shape[-1]

    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Write ``action`` [..., A]; see ``Policy.forward``."""
        td["action"] = self._choose(td["obs"].new_zeros(*td.batch_size, self._size))
        td["sample_log_prob"] = torch.zeros(td.batch_size)
        return self.get_value(td)

    def get_value(self, td: TensorDict) -> TensorDict:
        """Write zeros as ``value`` [...]."""
        td["value"] = torch.zeros(td.batch_size)
        return td

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        """Evaluation of actions, not available: there are no parameters."""
        raise NotImplementedError

    def _choose(self, zeros: torch.Tensor) -> torch.Tensor:
        return zeros


class RandomAgent(ZeroAgent):
    """Draws uniform actions from the action space, or from [-1, 1] where it is unbounded."""

    def __init__(self, action_space: spaces.Box) -> None:
        super().__init__(action_space)
        self._low = torch.as_tensor(action_space.low).clamp(-1e6, 1e6)
        self._high = torch.as_tensor(action_space.high).clamp(-1e6, 1e6)
        unbounded = ~torch.as_tensor(action_space.bounded_below & action_space.bounded_above)
        self._low[unbounded], self._high[unbounded] = -1.0, 1.0
        self._sizes = torch.tensor(sizes_of(action_space))

    def _choose(self, zeros: torch.Tensor) -> torch.Tensor:
        drawn = torch.rand_like(zeros)
        return (drawn * self._sizes).floor() if len(self._sizes) else self._low + (self._high - self._low) * drawn


AGENTS: dict[str, type[ZeroAgent]] = {"zero": ZeroAgent, "random": RandomAgent}
"""Agents by the names of ``play --agent``."""


@dataclass(frozen=True)
class ActionNumber:
    """One number of an action, from ``low`` to ``high``, which may be infinite.

    Attributes:
        moves: the joint or coordinate that it commands; empty if there is not exactly one.
        meaning: meaning of the command, with units; empty if unknown.
        commands: the commands of ``low`` and ``high``; zeros without ``moves``.
        start: the number of the joint's initial position or the actuator's first control, else 0, or the nearest limit.
    """

    term: str
    moves: str
    meaning: str
    low: float
    high: float
    commands: tuple[float, float]
    start: float


def action_numbers(env: EmbodiedEnv) -> list[ActionNumber]:
    """Return the A numbers of the action, in order."""
    numbers = []
    for name, term in env.action_manager.terms.items():
        low, high = (limit.tolist() for limit in term.action_limits)
        found = term.command_map()
        one_each = found is not None and len(found.names) == term.action_dim
        for i in range(term.action_dim):
            moves, meaning, commands, start = "", "", (0.0, 0.0), 0.0
            if found is not None and one_each:
                moves, meaning = found.names[i], found.meaning
                if env.sim.robots and moves in env.robot.joint_names:  # "rad or m": of a hinge, or of a slide
                    is_slide = env.sim.model.joint(f"{env.robot.uid}/{moves}").type[0] == SLIDE
                    meaning = re.sub(r"(\S+) or (\S+)", r"\2" if is_slide else r"\1", meaning)
                ends = found.offset[i] + found.factor[i] * torch.stack([limit[i] for limit in term.action_limits])
                commands = tuple(ends.clamp(found.low[i], found.high[i]).tolist())
                if isinstance(term, QposTerm | QposDenormalizedTerm):
                    home = env.robot.body_data.default_qpos[0, term.joint_ids[i]]
                    start = float((home - found.offset[i]) / found.factor[i])
            if term.kind == "ctrl":
                start = float(env.sim.model.key_ctrl[0, list(term.actuators.values())[i]])
            start = min(max(start, low[i]), high[i])
            numbers.append(ActionNumber(name, moves, meaning, low[i], high[i], commands, start))
    return numbers


class HandAgent(ZeroAgent):
    """Acts as set by the sliders of a page."""

    def __init__(self, env: EmbodiedEnv) -> None:
        super().__init__(env.single_action_space)
        self._numbers = action_numbers(env)
        self._sliders: list[tuple[Any, float]] = []  # each with its first value

    def place_sliders(self, gui: Any) -> None:
        """Add a slider for each number of the action to a viser server's panel."""

        def let_go(event: Any) -> None:
            for slider, start in self._sliders:
                slider.value = start

        with gui.add_folder("Action"):
            gui.add_button("Let go").on_click(let_go)
            for i, number in enumerate(self._numbers):
                start = number.start
                low = number.low if math.isfinite(number.low) else start - 1.0
                high = number.high if math.isfinite(number.high) else start + 1.0
                label = number.moves or f"{number.term} {i}"
                self._sliders.append((gui.add_slider(label, low, high, (high - low) / _NOTCHES, start), start))

    def _choose(self, zeros: torch.Tensor) -> torch.Tensor:
        return torch.tensor([[slider.value for slider, _ in self._sliders]], dtype=zeros.dtype)
