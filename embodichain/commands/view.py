"""``embodichain view``."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path

from matplotlib.image import imsave

from embodichain.agents.rl.run_config import load_run_config
from embodichain.agents.rl.saved_run import without_records
from embodichain.commands.arguments import whole_number
from embodichain.commands.pictures import Photographer, config_camera
from embodichain.commands.validate import is_env_config, read_env_config
from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.utils import ConfigError
from embodichain.utils.configclass import replace
from embodichain.utils.module_utils import add_allow_import, allowed_imports
from embodichain.utils.observations import entry_columns, entry_spaces
from embodichain.utils.utility import load_config_file

HELP = "Build a config's scene, write a picture of it, and list what the policy sees and does."
EXAMPLES = ("gym_config.json", "train_config.json --out scene.png --size 1280 960")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("config", type=Path, metavar="CONFIG", help="training config or environment config")
    parser.add_argument("--out", type=Path, default=Path("scene.png"), metavar="FILE", help="default: %(default)s")
    parser.add_argument("--seed", type=whole_number(0), default=1, help="of the episode that begins (default: 1)")
    parser.add_argument("--size", nargs=2, type=whole_number(16), default=[960, 720], metavar=("W", "H"), help="pixels")
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Write the picture and the lists; return 0.

    Raises:
        ConfigError: the config is wrong, or the picture cannot be written.
        RenderingUnavailableError: there is nothing to draw with.
    """
    env_id, cfgs = _read(args.config, allowed_imports(args))
    env = build_env(env_id, replace(without_records(cfgs[0]), num_envs=1, group_size=1, seed=args.seed))
    try:
        env.reset(seed=args.seed)
        with closing(Photographer(env, config_camera(cfgs), tuple(args.size))) as photographer:
            picture = photographer.shoot()
        try:
            imsave(args.out, picture)
        except (OSError, ValueError) as error:
            raise ConfigError(f"--out {args.out}: cannot be written: {error}") from error
        print(_text(env_id, env))
    finally:
        env.close()
    print(f"\npicture  {args.out}")
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
    lines = [f"{env_id}: a step is {env.cfg.sim_cfg.physics_dt * env.cfg.sim_steps_per_control:g} s", "", "observation"]
    for name, space in entry_spaces(env.single_observation_space).items():
        part = columns.get(name)
        place = "image, beside the flat observation" if part is None else f"columns {part.start} to {part.stop - 1}"
        lines.append(f"  {name:28} {list(space.shape)!s:14} {place}")
    lines += ["", "action"]
    first = 0
    for name, term in env.action_manager.terms.items():
        low, high = (limit.tolist() for limit in term.action_limits)
        for i in range(term.action_dim):
            found = term.command_map()
            what = f"{found.names[i]}: {found.meaning}" if found is not None and i < len(found.names) else ""
            lines.append(f"  {first + i:3}  {name:20} [{low[i]:g}, {high[i]:g}]  {what}".rstrip())
        first += term.action_dim
    return "\n".join(lines)
