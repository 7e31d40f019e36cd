"""A behaviour cloning from its config to the model: demonstrations, training, checkpoints, evaluation."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from embodichain import __version__
from embodichain.agents.rl.build import build_env_policy
from embodichain.agents.rl.checkpoint.cloned import CLONING, check_cloned
from embodichain.agents.rl.checkpoint.content import loading
from embodichain.agents.rl.checkpoint.folder import CheckpointFolder
from embodichain.agents.rl.checkpoint.run_access import RunLock, check_links
from embodichain.agents.rl.config.named import BC, find_config, find_named_file, names_config
from embodichain.agents.rl.demonstrations.dataset import read_demonstrations
from embodichain.agents.rl.demonstrations.load import task_of
from embodichain.agents.rl.distributed.stop import InterruptedTraining, StopSignals
from embodichain.agents.rl.gymnasium_checks import with_scene
from embodichain.agents.rl.models import Policy, VLAPolicy, load_policy_state
from embodichain.agents.rl.run_config import RunConfig, load_checkpoint_config, load_run_config
from embodichain.agents.rl.trainer.evaluation import EVAL_SEED_OFFSET, Evaluation, Evaluator
from embodichain.agents.rl.trainer.trainer import UnsavedTrainingError
from embodichain.ext.vla.policy import VLAPolicyCfg
from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.managers.cfg import DatasetCfg
from embodichain.lab.gym.envs.managers.datasets import LeRobotRecorder
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.tools.cloning.cloning import Cloning, check_can_be_cloned
from embodichain.tools.cloning.config import BCCfg, change_bc_config, load_bc_config
from embodichain.tools.cloning.demonstrations import Demonstrations, from_dataset, from_expert, from_rollouts
from embodichain.tools.cloning.folder import made_folder, out_folder, place
from embodichain.tools.cloning.vla_model import Save, build_vla
from embodichain.utils import ConfigError, logger
from embodichain.utils.configclass import replace
from embodichain.utils.device import resolve_device
from embodichain.utils.files import read_text, remove_unfinished, write_json
from embodichain.utils.state import freeze, thaw

_SUMMARY = "bc.json"
_KEEP_LAST = 2  # checkpoints: the latest, and one more in case it is damaged


@dataclass(frozen=True)
class _Plan:
    """A cloning to run.

    Attributes:
        run: the training that will start from the model.
        record: folder for a dataset of the expert's episodes.
        saved: the checkpoint to resume from.
        source: its path.
    """

    cfg: BCCfg
    run: RunConfig
    out: Path
    record: Path | None = None
    saved: Mapping[str, Any] | None = None
    source: str = ""

    @property
    def is_trained(self) -> bool:
        """Whether all steps are done."""
        return self.saved is not None and self.saved["cloning_state"]["step"] >= self.cfg.steps


def clone_from_config(
    path: str | Path,
    overrides: Sequence[str] = (),
    allowed_imports: Sequence[str] = (),
    allowed_writes: Sequence[str | Path] = (),
) -> dict[str, Any]:
    """Train a policy by behaviour cloning, and write its model.

    Args:
        path: of the config or of its folder, or the name of a shipped one.
        overrides: ``steps=500`` and the like.
        allowed_imports: prefixes of the modules that the training config may name.
        allowed_writes: folders outside ``outputs`` that the config may name for model and dataset.

    Returns:
        What also stands in the model's folder as ``bc.json``.

    Raises:
        ConfigError: the config or something that it names cannot be used.
        InterruptedTraining: on SIGINT or SIGTERM; the steps so far are saved.
        NonFiniteError: loss or parameters are not finite.
    """
    path = find_config(path, BC)
    cfg = load_bc_config(path, overrides)
    name = cfg.train_config
    train_config = find_config(name) if names_config(name) else find_named_file(name, path.parent, "train_config")
    run = load_run_config(train_config, _on_device(cfg), allowed_imports)
    _task(run)  # refused now rather than after the demonstrations
    if cfg.record is not None and cfg.dataset is not None:
        raise ConfigError("record: only the expert's episodes are recorded, not a dataset")
    if cfg.start_from is not None and not isinstance(run.policy, VLAPolicyCfg):
        raise ConfigError(f"start_from: only for a policy named 'vla', train_config has '{run.policy.name}'")
    out = out_folder(cfg, run, allowed_writes)
    record = None if cfg.record is None else place(cfg.record, allowed_writes)
    return _clone(_Plan(cfg, run, out, record))


def resume_cloning(
    folder: str | Path, overrides: Sequence[str] = (), allowed_imports: Sequence[str] = ()
) -> dict[str, Any]:
    """Resume a cloning from its latest checkpoint with its own config; bit-identical on the CPU.

    The demonstrations are read or generated again; they are not recorded a second time.

    Args:
        overrides: of fields that may change: ``steps=3000`` and the like.
        allowed_imports: prefixes of the modules that the training config may name.

    Returns:
        What also stands in the model's folder as ``bc.json``.

    Raises:
        ConfigError: there is no checkpoint of a cloning, or it cannot be used here.
        InterruptedTraining, NonFiniteError: as for :func:`clone_from_config`.
    """
    out = Path(folder)
    check_links(out)
    path, content = CheckpointFolder(out / "checkpoints", "").load_latest()
    if content.get("kind") != CLONING:
        raise ConfigError(f"{path}: is not of a behaviour cloning; 'embodichain resume {out}' resumes a training")
    if content["code_version"] != __version__:
        logger.log_warning(
            f"{path}: was written by version {content['code_version']}, this is {__version__}: the resumed "
            "cloning may differ from an uninterrupted one"
        )
    check_cloned(content, path)
    cfg = change_bc_config(content["cloning"], overrides, str(path))
    run = load_checkpoint_config(content["train_config"], _on_device(cfg), allowed_imports)
    plan = _Plan(cfg, run, out, None, thaw(content), str(path))
    summary = _read_summary(out)
    if plan.is_trained and summary is not None and (summary["success_rate"] is not None or not cfg.num_eval_episodes):
        logger.log_info(f"all of its {summary['steps']} steps are finished; to continue, raise steps=...")
        return summary
    logger.log_info(f"resuming from {path}")
    return _clone(plan)


def _on_device(cfg: BCCfg) -> list[str]:
    """Return the overrides by which a training config's environments run on the cloning's device, whatever its own."""
    return [f"trainer.device={resolve_device(cfg.device, 'device')}"]


class _Progress:
    """Checkpoints of a cloning."""

    def __init__(self, plan: _Plan, cloning: Cloning, data: Demonstrations, start: float) -> None:
        """Set up; ``start``: of the work, by ``time.perf_counter``."""
        self._plan = plan
        self._cloning = cloning
        self._data_facts = {"episodes": data.num_episodes, "frames": data.num_frames, "digest": data.digest()}
        self._start = start
        saved = plan.saved
        if saved is None:
            return
        with loading(plan.source, "cloning"):
            cloning.load_state_dict(saved["cloning_state"], plan.source)
            self._start -= saved["seconds"]
        if saved["demonstrations"] != self._data_facts:
            logger.log_warning(
                f"{plan.source}: the demonstrations have changed: the resumed cloning differs from an uninterrupted one"
            )

    def content(self) -> dict[str, Any]:
        """Return a checkpoint's content, not copied."""
        return {
            "kind": CLONING,
            "code_version": __version__,
            "cloning": vars(self._plan.cfg),
            "train_config": self._plan.run.resolved,
            "demonstrations": self._data_facts,
            "seconds": time.perf_counter() - self._start,
            "cloning_state": self._cloning.state_dict(),
        }

    def save(self) -> dict[str, Any]:
        """Write a checkpoint and return its content; a failure to write is a warning."""
        content = self.content()
        try:
            _folder_of(self._plan).save(freeze(content), self._cloning.step)
        except OSError as error:
            logger.log_warning(f"the checkpoint of step {self._cloning.step} could not be written: {error}")
        return content


def _folder_of(plan: _Plan) -> CheckpointFolder:
    return CheckpointFolder(plan.out / "checkpoints", "bc", _KEEP_LAST)


def _clone(plan: _Plan) -> dict[str, Any]:
    """Run the plan; only code below this writes into the model's folder."""
    device = resolve_device(plan.cfg.device, "device")
    torch.manual_seed(plan.cfg.seed)
    np.random.seed(plan.cfg.seed)  # noqa: NPY002 (the generator that users' models draw from)
    random.seed(plan.cfg.seed)
    start = time.perf_counter()
    with made_folder(plan.out / "checkpoints"), RunLock() as lock:
        lock.take(plan.out)
        for folder in (plan.out, plan.out / "checkpoints"):
            remove_unfinished(folder)
        if plan.saved is not None:  # a killed process may have left old checkpoints
            _folder_of(plan).take_up(Path(plan.source), dict(plan.saved))
        policy, save, data = _build_policy_and_data(plan, device)
        with StopSignals() as stop:
            if data is None:
                assert plan.saved is not None
                finished = plan.saved
            else:
                finished = _train(plan, policy, data.to(device), start, stop)
            return _conclude(plan, policy, save, finished, device, stop)


def _train(plan: _Plan, policy: Policy, data: Demonstrations, start: float, stop: StopSignals) -> Mapping[str, Any]:
    """Make the remaining steps; return the last checkpoint's content."""
    cloning = Cloning(policy, data, plan.cfg)
    progress = _Progress(plan, cloning, data, start)

    def after_step() -> None:
        if cloning.step % plan.cfg.save_freq == 0 and cloning.step < plan.cfg.steps:
            progress.save()
        stop.check()

    if plan.saved is None:
        progress.save()  # the expert's work is done, and its dataset is written
    try:
        cloning.run(_report, after_step)
    except InterruptedTraining:
        progress.save()
        logger.log_info(f"stopped at step {cloning.step}; 'embodichain bc --resume {plan.out}' resumes from there")
        raise
    return progress.save()


def _conclude(
    plan: _Plan, policy: Policy, save: Save, finished: Mapping[str, Any], device: torch.device, stop: StopSignals
) -> dict[str, Any]:
    """Write model and summary; then evaluate, which may be interrupted, and complete the summary."""
    state, data = finished["cloning_state"], finished["demonstrations"]
    summary = {
        "model": str(plan.out),
        "episodes": data["episodes"],
        "frames": data["frames"],
        "steps": state["step"],
        "skipped_steps": state["skipped"],
        "loss": state["loss"] if math.isfinite(state["loss"]) else None,
        "seconds": round(finished["seconds"], 2),
        "success_rate": None,
        "success_interval_95": None,
        "metrics": {},
        "config": vars(plan.cfg),
    }
    try:
        save(plan.out)
        write_json(plan.out / _SUMMARY, summary, indent=2)
    except (ConfigError, OSError) as error:
        raise UnsavedTrainingError(f"{error}. 'embodichain bc --resume {plan.out}' writes it") from error
    result = _evaluate(plan, policy, device, stop)
    if result is not None and result.success_interval is not None:
        summary |= {"success_rate": result.success_rate, "success_interval_95": list(result.success_interval)}
        summary["metrics"] = result.metrics
        try:
            write_json(plan.out / _SUMMARY, summary, indent=2)
        except OSError as error:
            logger.log_warning(f"{plan.out / _SUMMARY}: the evaluation's result could not be written: {error}")
    return summary


def _read_summary(out: Path) -> dict[str, Any] | None:
    try:
        summary = json.loads(read_text(out / _SUMMARY))
    except (OSError, ValueError):
        return None
    is_ours = isinstance(summary, dict) and {"steps", "success_rate"} <= summary.keys()
    return summary if is_ours else None


def _task(run: RunConfig) -> EmbodiedEnvCfg:
    return with_scene(run.env, "train_config")


def _env_config(plan: _Plan) -> EmbodiedEnvCfg:
    """Return the environment of the expert, with its recording."""
    cfg = plan.cfg
    env = replace(_task(plan.run), num_envs=cfg.num_envs, seed=cfg.seed, group_size=1, dataset={}, curriculum={})
    if plan.record is None:
        return env
    # Other policies than VLAs read all numbers of the observation.
    is_vla = isinstance(plan.run.policy, VLAPolicyCfg)
    params = {"save_path": plan.record.name, **({} if is_vla else {"environment_state": True})}
    return replace(env, dataset={"demonstrations": DatasetCfg(LeRobotRecorder, params)})


def _build_policy_and_data(plan: _Plan, device: torch.device) -> tuple[Policy, Save, Demonstrations | None]:
    """Return the policy and how its model is written, and demonstrations, or None if all steps are done."""
    env = build_env(plan.run.env_id, _env_config(plan))
    try:
        policy, save = _build(plan, env, device)
        if not plan.is_trained:
            return policy, save, _demonstrations(plan, env, policy)
        assert plan.saved is not None
        load_policy_state(policy, plan.saved["cloning_state"]["policy"], plan.source)
        return policy, save, None
    finally:
        env.close()


def _build(plan: _Plan, env: EmbodiedEnv, device: torch.device) -> tuple[Policy, Save]:
    """Return the training's policy with the weights that the cloning begins from, and how its model is written.

    Raises:
        ConfigError: it cannot be cloned.
    """
    if isinstance(plan.run.policy, VLAPolicyCfg):
        return build_vla(plan.run.policy, plan.cfg.start_from, env, device)
    policy = build_env_policy(plan.run, env, device)
    check_can_be_cloned(policy)
    return policy, lambda out: None  # the training reads the checkpoint


def _demonstrations(plan: _Plan, env: EmbodiedEnv, policy: Policy) -> Demonstrations:
    cfg, is_vla = plan.cfg, isinstance(policy, VLAPolicy)
    if cfg.dataset is None:
        if plan.record is not None:
            env.write_into(plan.record.parent)
        return from_expert(env, cfg.num_episodes, policy.obs_keys, cfg.seed, reads_flat_obs=not is_vla)
    if is_vla:
        return from_dataset(cfg.dataset, cfg.num_episodes, policy.obs_keys, env.action_manager.total_action_dim)
    found = read_demonstrations(cfg.dataset, cfg.num_episodes, task_of(plan.run, env), policy.obs_keys, "dataset")
    return from_rollouts(found.episodes, f"dataset: {cfg.dataset}")


def _report(step: int, loss: float) -> None:
    print(f"step {step:6d}  loss {loss:.3f}", flush=True)


def _evaluate(plan: _Plan, policy: Policy, device: torch.device, stop: StopSignals) -> Evaluation | None:
    cfg, run = plan.cfg, plan.run
    if not cfg.num_eval_episodes:
        return None
    env = build_env(run.env_id, replace(_task(run), num_envs=cfg.num_envs, group_size=1, dataset={}, curriculum={}))
    try:
        evaluator = Evaluator(env, cfg.num_eval_episodes, cfg.seed + EVAL_SEED_OFFSET, device, Path())
        return evaluator.run(policy, "bc", stop.check)
    finally:
        env.close()


def format_cloning(summary: Mapping[str, Any]) -> str:
    """Return the summary of a cloning for the screen."""
    loss = "not finite" if summary["loss"] is None else f"{summary['loss']:.3f} nats"
    lines = [
        f"model           {summary['model']}",
        f"demonstrations  {summary['episodes']} episodes, {summary['frames']} frames",
        f"training time   {summary['seconds']:.1f} s for {summary['steps']} steps, loss {loss}",
    ]
    if summary["skipped_steps"]:
        lines.append(f"skipped         {summary['skipped_steps']} steps with a non-finite loss or gradient")
    if summary["success_rate"] is not None:
        low, high = summary["success_interval_95"]
        lines.append(f"success rate    {summary['success_rate']:.1%} (95 % interval {low:.1%} to {high:.1%})")
        lines += [f"{name.replace('_', ' '):15} {value:.4g}" for name, value in summary["metrics"].items()]
    return "\n".join(lines)
