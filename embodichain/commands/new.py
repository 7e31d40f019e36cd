"""``embodichain new``: a package with a task, its configs and its tests, from templates."""

import argparse
import ast
import importlib.util
import inspect
import json
import keyword
import re
import shlex
import sys
from contextlib import closing
from pathlib import Path

import embodichain.lab.gym.envs.tasks.rl  # noqa: F401 (registers the tasks; their names are taken)
from embodichain.agents.rl.run_config import find_train_config, load_run_config
from embodichain.commands.arguments import CONFIG_HELP, output_folder
from embodichain.commands.robot_files import choose_goals, relative_file, robot_task
from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.env_sources import find_source
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.registry import get_env_spec, get_registered_env_ids
from embodichain.lab.sim.cfg import SimulationManagerCfg
from embodichain.schema import schema_text
from embodichain.utils import ConfigError, doors
from embodichain.utils.utility import load_config_file

EXAMPLES = (
    "task lift_cube",
    "task my_reach --into projects",
    "task my_walk --robot my_robot.xml",
    "task my_go2 --from go2_flat",
)

_TEMPLATES = Path(__file__).parents[1] / "tools" / "task_template"
# Words in the templates, for their own robot.
_OWN = {
    "what": "the tool of a UR10",
    "tool": "env.robot.get_eef_pose()[:, :3, 3]",
    "note": "                 # above 95 % success within a minute on 2 cores",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("what", choices=["task"], help="what to write")
    parser.add_argument("name", metavar="NAME", help="of the package: small letters, digits and underscores")
    parser.add_argument(
        "--robot", metavar="FILE", help="its model: MJCF, URDF, menagerie/<model>, or a bundled asset (default: a UR10)"
    )
    parser.add_argument("--from", dest="config", metavar="CONFIG", help=f"copy a task: {CONFIG_HELP}")
    parser.add_argument("--into", type=output_folder, default=Path(), metavar="FOLDER", help="where (default: here)")


def run(args: argparse.Namespace) -> int:
    """Write the package; return 0."""
    name = args.name
    folder, task = write_task(name, args.into, args.robot, args.config)
    print(f"{folder} is there, with the task {task}. From {folder.parent.absolute()}:\n")
    print(f"  embodichain trust {name}    # once: a config file alone does not choose what code runs")
    if args.config is not None and args.robot is not None:
        print(f"  embodichain validate {name}/train.json    # says where names of the other robot are left")
        print("  # Numbers of the other robot stay, such as heights, and the order of its legs in a gait's offsets.")
    print(f"  embodichain train {name}/train.json")
    print(f"  embodichain play {name}/train.json --agent random")
    python = "python"
    if args.config is None and not importlib.util.find_spec("pytest"):
        print(f"  {doors.install_command('pytest')}")
        python = shlex.quote(sys.executable)
    tests = "" if args.config is not None else f"  {python} -m pytest {name}\n"
    print(f"{tests}\n{folder / 'README.md'} says more.")
    return 0


def write_task(name: str, into: Path, robot: str | None = None, config: str | None = None) -> tuple[Path, str]:
    """Write the package ``name`` into a folder; return its folder and its task's registered name.

    Args:
        robot: model of the robot, named as for ``robot.fpath``; None: the template's own.
        config: training config whose task is copied, as ``find_train_config`` takes it; None: the templates.
    """
    camel, folder = "".join(part.capitalize() for part in name.split("_")), into / name
    if not re.fullmatch(r"[a-z][a-z0-9_]{,99}", name) or keyword.iskeyword(name):
        raise ConfigError(f"'{name}': small letters, digits and underscores are needed, and no keyword of Python")
    if f"{camel}RL" in get_registered_env_ids():
        raise ConfigError(f"'{name}': there is a task {camel}RL already")
    if folder.exists():
        raise ConfigError(f"{folder}: is there already")
    if importlib.util.find_spec(name) is not None:
        raise ConfigError(f"'{name}': Python has a module of this name already, which would be taken instead")
    words, files = {"name": name, "camel": camel} | _OWN, {}
    for template in sorted(_TEMPLATES.glob("*.tmpl")):
        files[template.stem] = template.read_text(encoding="utf-8")
    if config is not None:
        words |= _use_task(files, config, folder)
        if robot is not None:
            env = json.loads(files["env.json"])
            own = {"uid": env["robot"]["uid"], "fpath": relative_file(robot, folder)}
            physics_dt = env["env"].get("sim_cfg", {}).get("physics_dt", SimulationManagerCfg.physics_dt)
            env["robot"] = robot_task(robot, physics_dt=physics_dt)["robot"] | own
            env["env"].pop("symmetry", None)  # of the other robot's joints
            files["env.json"] = json.dumps(env, indent=2) + "\n"
    elif robot is not None:
        words |= _use_robot(files, robot, folder)
    folder.mkdir(parents=True)
    for file, text in files.items():
        for word, value in words.items():
            text = text.replace(f"{{{{{word}}}}}", value)
        (folder / file).write_text(text, encoding="utf-8")
    (folder / "schema").mkdir()
    for kind in ("train", "env"):
        (folder / "schema" / f"{kind}.schema.json").write_text(schema_text(kind), encoding="utf-8")
    return folder, f"{camel}RL"


def _use_robot(files: dict[str, str], robot: str, folder: Path) -> dict[str, str]:
    """Put another robot into the templates of the configs; return the words for the others."""
    task = robot_task(robot)
    with closing(EmbodiedEnv(config_to_cfg(task, env_class=EmbodiedEnv).for_run(1, 256, sim_device="cpu"))) as env:
        env.reset()
        link, low, high = choose_goals(env)
    config = json.loads(files["env.json"])
    config["max_episode_steps"] = 100  # 2 s
    config["env"]["events"]["place_goal"]["params"]["position_range"] = [
        [round(x, 4) for x in corner.tolist()] for corner in (low, high)
    ]
    near = round(min(0.05, 0.001 + 0.2 * float((high - low).norm())), 4)  # m; a small robot has to move, too
    config["env"]["extensions"]["success_threshold"] = near
    config["env"]["rewards"]["near"]["params"]["scale"] = 6 * near
    config["env"] |= task["env"] | {
        "observations": task["env"]["observations"] | {"goal": config["env"]["observations"]["goal"]}
    }
    config["robot"] = task["robot"] | {"fpath": relative_file(robot, folder)}
    files["env.json"] = json.dumps(config, indent=2) + "\n"
    return {"what": f"the link {link}", "tool": f"env.robot.get_link_pose({link!r})[:, :3]", "note": ""}


def _use_task(files: dict[str, str], config: str, folder: Path) -> dict[str, str]:
    """Put a copy of a task's configs and class in place of the templates; return the words for the others."""
    path = find_train_config(config)
    run = load_run_config(path)
    if not run.trainer.gym_config or find_source(run.env_id) is not None:
        raise ConfigError(f"--from {config}: has no task of ours in a file of its own: copy {path} itself")
    spec = get_env_spec(run.env_id)
    limit = "" if spec.max_episode_steps is None else f", max_episode_steps={spec.max_episode_steps}"
    values = {"exp_name": '"{{name}}"', "gym_config": '"env.json", "import_modules": ["{{name}}.task"]'}
    files["train.json"] = _with_values(path, {"$schema": '"schema/train.schema.json"', **values})
    values, own = {"$schema": '"schema/env.schema.json"', "id": '"{{camel}}RL"'}, Path(str(run.trainer.gym_config))
    files["env.json"] = _with_values(own, values)
    robot = str(load_config_file(own).get("robot", {}).get("fpath", ""))
    if (own.parent / robot).is_file():  # next to the config
        there = json.dumps(relative_file(str(own.parent / robot), folder))
        files["env.json"] = files["env.json"].replace(json.dumps(robot), there)
    files["task.py"] = _copied_class(spec.cls, f'@register_env("{{{{camel}}}}RL"{limit}, override=True)')
    del files["test_task.py"]
    readme = re.sub(r".*test_task\.py.*\n|.*pytest.*\n", "", files["README.md"])
    files["README.md"] = re.sub(r"the task: .*names", f"the task, a copy of {run.env_id}", readme)
    return {"note": ""}


def _with_values(path: Path, values: dict[str, str]) -> str:
    """Return a config's text with other texts for the first values of its keys."""
    if path.suffix != ".json":
        raise ConfigError(f"--from: {path} is copied as it is written, which must be JSON")
    text = path.read_text(encoding="utf-8")
    for key, value in values.items():
        text = re.sub(rf'"{re.escape(key)}"\s*:\s*"[^"]*"', f'"{key}": {value}', text, count=1)
    return text


def _copied_class(cls: type, decorator: str) -> str:
    """Return a template of a module with a class and what it needs of its own module."""
    source = Path(inspect.getfile(cls)).read_text(encoding="utf-8")
    lines, tree, needed = source.splitlines(), ast.parse(source), {"register_env", cls.__name__}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            node.decorator_list = []
    for _ in tree.body:  # also what stands below the class
        used = [ast.walk(node) for node in tree.body if needed & _defined(node)]
        needed |= {inner.id for inners in used for inner in inners if isinstance(inner, ast.Name)}
    imports, others, start = list[str](), list[str](), 0
    for node in tree.body:
        text, start = "\n".join(lines[start : node.end_lineno]).strip(), node.end_lineno or 0  # with the comments above
        if isinstance(node, ast.Import | ast.ImportFrom):
            node.names = [alias for alias in node.names if (alias.asname or alias.name) in needed]
            imports += [ast.unparse(node)] if node.names else []
        elif isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            others += [f"{decorator}\n" + "\n".join(lines[node.lineno - 1 : node.end_lineno])]
        elif needed & _defined(node):
            others.append(text)
    head = f'"""A copy of {cls.__module__}, to edit. {ast.get_docstring(tree)}\n"""\n'
    return "\n".join([head, *imports, "", "", "\n\n\n".join(others), ""]).replace(cls.__name__, "{{camel}}Env")


def _defined(node: ast.stmt) -> set[str]:
    """Return the names that a statement defines."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name for alias in node.names}
    stored = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    return {node.name} if isinstance(node, ast.ClassDef | ast.FunctionDef) else stored
