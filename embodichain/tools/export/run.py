"""Exports the policy of a run, and compares the file with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from embodichain.agents.rl.checkpoint.saved_run import find_run
from embodichain.tools.export.formats import FORMATS, RUNNER
from embodichain.tools.export.module import DeployedPolicy, actor_entries
from embodichain.tools.export.parity import ParityError, check_parity, record_steps
from embodichain.tools.export.spec import describe_policy
from embodichain.tools.open_run import open_run
from embodichain.utils import ConfigError
from embodichain.utils.files import write_atomically, write_json

_SEED_OFFSET = 4_000_003


def export_run(
    target: str, file_format: str, out: Path | None, observations: int, envs: int, allowed_imports: Sequence[str]
) -> dict[str, Any]:
    """Write the policy of a run into ``out``, or ``export`` in the run's folder, in one of ``FORMATS``.

    Returns:
        ``observations`` that it was compared on, the largest ``difference`` of actions, names of ``inputs`` and
        ``outputs``, and the ``files`` written.

    Raises:
        ConfigError: there is no such run, it cannot be built here, or the file cannot be written.
        ParityError: the file does not do what the policy does on ``observations`` of ``envs`` environments: then it is
            not left behind.
    """
    saved = find_run(target)
    chosen = FORMATS[file_format]
    path = out or saved.folder / "export" / f"policy{chosen.suffix}"
    with open_run(saved, envs, "cpu", allowed_imports) as opened:
        space = opened.env.single_observation_space
        entries = actor_entries(opened.config.policy, space, opened.policy)
        terms = list(opened.env.action_manager.terms.values())
        module = DeployedPolicy(opened.policy, space, entries, opened.env.single_action_space, terms).eval()
        spec = describe_policy(saved, opened, module)
        steps = record_steps(opened.env, opened.policy, opened.device, entries, observations, _SEED_OFFSET)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            chosen.write(module, spec, path)
            largest = check_parity(chosen.load(path), module, steps)
            files = [path, *_companions(path, spec, file_format)]
        except ParityError:
            path.unlink(missing_ok=True)
            raise
        except OSError as error:
            raise ConfigError(f"--out {path}: cannot be written: {error}") from error
    compared = {"observations": len(steps) * envs, "difference": largest}
    return {**compared, "inputs": list(module.inputs), "outputs": module.outputs, "files": files}


def _companions(path: Path, spec: dict[str, object], file_format: str) -> list[Path]:
    """Write the specification beside the policy, and the runner of ONNX files."""
    readable = path.with_suffix(".json")
    write_json(readable, spec, indent=2)
    if file_format != "onnx":
        return [readable]
    runner = path.parent / "policy_runner.py"
    write_atomically(runner, lambda file: file.write(RUNNER.read_bytes()))
    return [readable, runner]
