"""``embodichain view``."""

import argparse
from pathlib import Path

from matplotlib.image import imsave

from embodichain.agents.rl.config.arguments import add_allow_import, add_import, allowed_imports, import_named_modules
from embodichain.commands import arguments
from embodichain.tools.view import format_spaces, opened_scene, render_scene, show_scene
from embodichain.utils import ConfigError, reason_of

EXAMPLES = (
    "gym_config.json",
    "train_config.json --out scene.png --size 1280 960",
    "train_config.json robot.init_rot=[0,0,90] --viewer",
)

_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "config", type=Path, metavar="CONFIG", help=f"{arguments.CONFIG_HELP}; or an environment config's file"
    )
    arguments.add_overrides(parser)
    parser.add_argument(
        "--viewer", action="store_true", help="in the browser, with a slider for each number of the action"
    )
    parser.add_argument(
        "--out", type=arguments.output_file_with(_IMAGE_SUFFIXES), metavar="FILE", help="the image (default: scene.png)"
    )
    parser.add_argument(
        "--seed", type=arguments.whole_number(0), default=1, help="of the episode that begins (default: 1)"
    )
    parser.add_argument("--size", nargs=2, type=arguments.pixels, default=[960, 720], metavar=("W", "H"), help="pixels")
    add_import(parser)
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Write the image and print observations and actions, or show the scene until Ctrl-C; return 0."""
    arguments.check_viewer(args)
    import_named_modules(args)
    path = args.out or Path("scene.png")
    with opened_scene(args.config, args.overrides, args.seed, allowed_imports(args)) as (env_id, env, view):
        if args.viewer:
            print(format_spaces(env_id, env), flush=True)
            show_scene(env, args.seed)
            return 0
        image = render_scene(env, view, tuple(args.size), args.seed)
        text = format_spaces(env_id, env)
    try:
        imsave(path, image)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--out {path}: cannot be written: {reason_of(error)}") from error
    print(f"{text}\n\nimage    {path}")
    return 0
