"""``embodichain view``."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path

import torch
from matplotlib.image import imsave

from embodichain.agents.rl.build import without_records
from embodichain.agents.rl.config.trainer_cfg import is_env_config
from embodichain.agents.rl.run_config import load_run_config
from embodichain.commands.actions import action_numbers
from embodichain.commands.arguments import output_file, whole_number
from embodichain.commands.live import HandAgent, check_live_arguments, play_live
from embodichain.commands.pictures import Photographer, config_camera
from embodichain.commands.validate import read_env_config
from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.utils import ConfigError
from embodichain.utils.configclass import replace
from embodichain.utils.module_utils import add_allow_import, add_import, allowed_imports, import_named_modules
from embodichain.utils.observations import entry_columns, entry_spaces
from embodichain.utils.utility import load_config_file

EXAMPLES = ("gym_config.json", "train_config.json --out scene.png --size 1280 960", "train_config.json --viewer")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("config", type=Path, metavar="CONFIG", help="training config or environment config")
    parser.add_argument(
        "--viewer", action="store_true", help="in the browser, with a slider for each number of the action"
    )
    parser.add_argument("--out", type=output_file, metavar="FILE", help="the picture (default: scene.png)")
    parser.add_argument("--seed", type=whole_number(0), default=1, help="of the episode that begins (default: 1)")
    parser.add_argument("--size", nargs=2, type=whole_number(16), default=[960, 720], metavar=("W", "H"), help="pixels")
    add_import(parser)
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Write the picture and the lists, or show the scene until Ctrl-C; return 0.

    Raises:
        ConfigError: the config is wrong, or the picture cannot be written.
        RenderingUnavailableError: there is nothing to draw with.
    """
    check_live_arguments(args, "--out")
    import_named_modules(args)
    env_id, cfgs = _read(args.config, allowed_imports(args))
    env = build_env(env_id, replace(without_records(cfgs[0]), num_envs=1, group_size=1, seed=args.seed))
    try:
        if args.viewer:
            print(_text(env_id, env), flush=True)
            play_live(env, HandAgent(env), torch.device("cpu"), args.seed)
            return 0
        path = args.out or Path("scene.png")
        env.reset(seed=args.seed)
        with closing(Photographer(env, config_camera(cfgs), tuple(args.size))) as photographer:
            picture = photographer.shoot()
        try:
            imsave(path, picture)
        except (OSError, ValueError) as error:
            raise ConfigError(f"--out {path}: cannot be written: {error}") from error
        print(_text(env_id, env))
    finally:
        env.close()
    print(f"\npicture  {path}")
    return 0


def _read(path: Path, allowed: list[str]) -> tuple[str, list[EmbodiedEnvCfg]]:
    """Return the task's name, its config, and whatever other configs say where a camera stands."""
    if is_env_config(load_config_file(path)):
        env_id, cfg = read_env_config(path, allowed)
        return env_id, [cfg]
    config = load_run_config(path, ["trainer.device=cpu"], allowed)
    return config.env_id, [config.env, *([config.eval_env] if config.eval_env is not None else [])]


def _text(env_id: str, env: EmbodiedEnv) -> str:
    columns = entry_columns(env.single_observation_space)
    lines = [f"{env_id}: a step is {env.step_dt:g} s", "", "observation"]
    for name, space in entry_spaces(env.single_observation_space).items():
        part = columns.get(name)
        place = "image, beside the flat observation" if part is None else f"columns {part.start} to {part.stop - 1}"
        lines.append(f"  {name:28} {list(space.shape)!s:14} {place}")
    lines += ["", "action"]
    for i, number in enumerate(action_numbers(env)):
        low, high = number.commands
        what = f"{number.moves}: {number.meaning}: {low:.4g} to {high:.4g}" if number.moves else ""
        lines.append(f"  {i:3}  {number.term:20} [{number.low:g}, {number.high:g}]  {what}".rstrip())
    return "\n".join(lines)
