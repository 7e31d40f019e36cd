"""The command ``embodichain``.

embodichain schema --kind env --out env.schema.json
embodichain doctor --algo ppo
embodichain verify-backends configs/agents/rl/push_cube/train_config.json
embodichain replay outputs/cart_pole_ppo_20260101_120000/bundles/update_step_131072.pt
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from embodichain.agents.rl.doctor import command as doctor
from embodichain.agents.rl.replay import command as replay
from embodichain.agents.rl.verify import command as verify
from embodichain.schema import SCHEMAS
from embodichain.utils import ConfigError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0 done, 1 failed, 2 wrong usage or config."""
    parser = argparse.ArgumentParser(prog="embodichain", description="Tools around the training of robots on MuJoCo.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_schema(commands)
    _add_doctor(commands)
    _add_replay(commands)
    _add_verify(commands)
    args = parser.parse_args(argv)
    try:
        code: int = args.run(args)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return code


def _add_schema(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "Write the JSON Schema of a config file, by which editors complete and check it."
    parser = commands.add_parser("schema", help=text, description=text)
    parser.add_argument("--kind", choices=list(SCHEMAS), default="train", help="which file (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write it (default: the terminal)")
    parser.set_defaults(run=_schema)


def _schema(args: argparse.Namespace) -> int:
    text = json.dumps(SCHEMAS[args.kind](), indent=1, ensure_ascii=False) + "\n"
    if args.out is None:
        print(text, end="")
        return 0
    try:
        args.out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out {args.out}: cannot be written: {error.strerror}") from error
    return 0


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "Examine an algorithm by closed-form probes, and name what is wrong with it."
    parser = commands.add_parser("doctor", help=text, description=text)
    doctor.add_arguments(parser)
    parser.set_defaults(run=doctor.run)


def _add_replay(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "Repeat an update that was not finite, from the bundle that the run wrote, and say where it began."
    example = "example: %(prog)s outputs/cart_pole_ppo_20260101_120000/bundles/update_step_131072.pt"
    codes = "exit code: 0 it failed as in the run, 1 it did not, 2 the bundle cannot be used here"
    parser = commands.add_parser("replay", help=text, description=text, epilog=f"{example}. {codes}")
    replay.add_arguments(parser)
    parser.set_defaults(run=replay.run)


def _add_verify(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "Compare the two physics engines: the same states and actions on both, and one policy's success."
    example = "example: %(prog)s configs/agents/rl/push_cube/train_config.json --checkpoint RUN/checkpoints/LAST.pt"
    codes = "exit code: 0 they agree, 1 they do not, 2 wrong usage or config"
    parser = commands.add_parser("verify-backends", help=text, description=text, epilog=f"{example}. {codes}")
    verify.add_arguments(parser)
    parser.set_defaults(run=verify.run)


if __name__ == "__main__":
    sys.exit(main())
