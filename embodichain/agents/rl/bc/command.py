"""``embodichain bc``: a policy imitates demonstrations, on the command line."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from embodichain.agents.rl.bc.cloning import clone
from embodichain.agents.rl.bc.config import BCCfg, find_train_config, load_bc_config
from embodichain.agents.rl.bc.demonstrations import Demonstrations, from_dataset, from_expert
from embodichain.agents.rl.models import VLAPolicy, build_policy, save_vla_model
from embodichain.agents.rl.run_config import RunConfig, load_run_config
from embodichain.agents.rl.utils.config import resolve_device
from embodichain.agents.rl.utils.evaluation import EVAL_SEED_OFFSET, Evaluation, Evaluator
from embodichain.agents.rl.utils.run_access import RunLock
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.cfg import DatasetCfg
from embodichain.lab.gym.envs.managers.datasets import LeRobotRecorder
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.utils import ConfigError
from embodichain.utils.configclass import replace
from embodichain.utils.module_utils import add_allow_import, allowed_imports

__all__ = ["add_arguments", "clone_from_config", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("config", type=Path, metavar="CONFIG", help="config of the cloning, JSON or YAML")
    add_allow_import(parser, "the training config")
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="values in place of the config's")


def run(args: argparse.Namespace) -> int:
    """Clone as a config says, and print what came of it; return 0.

    Raises:
        ConfigError: the config or something that it names cannot be used.
    """
    summary = clone_from_config(args.config, args.overrides, allowed_imports(args))
    print(f"model           {summary['model']}")
    print(f"demonstrations  {summary['episodes']} episodes, {summary['frames']} frames")
    print(f"training time   {summary['seconds']:.1f} s for {summary['steps']} steps, loss {summary['loss']:.3f} nats")
    if summary["success_rate"] is not None:
        low, high = summary["success_interval_95"]
        print(f"success rate    {summary['success_rate']:.1%} (95 % interval {low:.1%} to {high:.1%})")
    return 0


def clone_from_config(
    path: str | Path, overrides: Sequence[str] = (), allowed_imports: Sequence[str] = ()
) -> dict[str, Any]:
    """Train a policy by behaviour cloning as a config says, and write its model.

    Args:
        path: of the config.
        overrides: ``steps=500`` and the like.
        allowed_imports: prefixes of the modules that the training config may name.

    Returns:
        What also stands in the model's folder as ``bc.json``.

    Raises:
        ConfigError: the config or something that it names cannot be used.
    """
    cfg = load_bc_config(path, overrides)
    run = load_run_config(find_train_config(cfg, Path(path).parent), (), allowed_imports)
    if run.train.policy["name"] != "vla":
        raise ConfigError(f"train_config: policy.name: only 'vla' is cloned, got '{run.train.policy['name']}'")
    out = _out_folder(cfg, run)
    device = resolve_device(cfg.device, "device")
    torch.manual_seed(cfg.seed)
    start = time.perf_counter()
    env = build_env(run.env_id, _env_config(cfg, run))
    lock = RunLock()
    try:
        _hold(out, lock)
        policy = _build(run, env, device)
        data = _demonstrations(cfg, env, policy)
        loss = clone(policy, data.to(device), cfg, _report)
        seconds = time.perf_counter() - start
        save_vla_model(policy.model, policy.model_config, out)
        result = _evaluate(cfg, run, policy, device)
    finally:
        env.close()
        lock.release()
    summary = {
        "model": str(out),
        "episodes": data.num_episodes,
        "frames": data.num_frames,
        "steps": cfg.steps,
        "loss": loss,
        "seconds": round(seconds, 2),
        "success_rate": result.success_rate if result else None,
        "success_interval_95": list(result.success_interval) if result else None,
        "config": vars(cfg),
    }
    (out / "bc.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return summary


def _out_folder(cfg: BCCfg, run: RunConfig) -> Path:
    path = cfg.out or run.train.policy.get("vla_config", {}).get("model_path")
    if path is None:
        raise ConfigError("out: required, since the training config's policy.vla_config has no model_path")
    if (Path(path) / "config.json").exists():
        raise ConfigError(f"out: {path}: there is a model already; name another folder, or remove it")
    return Path(path)


def _hold(out: Path, lock: RunLock) -> None:
    """Make the model's folder, and keep a second cloning out of it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out: {out}: cannot be made: {error.strerror}") from error
    lock.take(out)


def _env_config(cfg: BCCfg, run: RunConfig) -> Any:
    """Return the environment in which the expert acts, and is recorded."""
    env = replace(run.env, num_envs=cfg.num_envs, seed=cfg.seed, group_size=1, dataset={})
    if cfg.record is None:
        return env
    if cfg.dataset is not None:
        raise ConfigError("record: only what the expert does is recorded, not another dataset")
    return replace(env, dataset={"demonstrations": DatasetCfg(LeRobotRecorder, {"save_path": Path(cfg.record).name})})


def _build(run: RunConfig, env: EmbodiedEnv, device: torch.device) -> VLAPolicy:
    """Return the training's policy with weights as they begin."""
    block = dict(run.train.policy)
    block["vla_config"] = {**block.get("vla_config", {}), "model_path": None}
    policy = build_policy(
        block,
        env.flattened_observation_space,
        env.single_action_space,
        device,
        observation_space=env.single_observation_space,
    )
    assert isinstance(policy, VLAPolicy)
    return policy


def _demonstrations(cfg: BCCfg, env: EmbodiedEnv, policy: VLAPolicy) -> Demonstrations:
    if cfg.dataset is not None:
        return from_dataset(cfg.dataset, cfg.num_episodes, policy.obs_keys, env.action_manager.total_action_dim)
    if cfg.record is not None:
        env.write_into(Path(cfg.record).parent)
    return from_expert(env, cfg.num_episodes, policy.obs_keys, cfg.seed)


def _report(step: int, loss: float) -> None:
    print(f"step {step:6d}  loss {loss:.3f}", flush=True)


def _evaluate(cfg: BCCfg, run: RunConfig, policy: VLAPolicy, device: torch.device) -> Evaluation | None:
    if not cfg.num_eval_episodes:
        return None
    env = build_env(run.env_id, replace(run.env, num_envs=cfg.num_envs, group_size=1, dataset={}))
    try:
        evaluator = Evaluator(env, cfg.num_eval_episodes, cfg.seed + EVAL_SEED_OFFSET, device, Path())
        return evaluator.run(policy, "bc")
    finally:
        env.close()
