"""Train as a config says, with every part put together by hand."""

import argparse
import json
import time
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from torch.utils.tensorboard import SummaryWriter

from embodichain.agents.rl.algo import build_algo, get_registered_algo_names
from embodichain.agents.rl.models import build_mlp_from_cfg, build_policy, get_registered_policy_names
from embodichain.agents.rl.utils import dict_to_tensordict, flatten_dict_observation
from embodichain.agents.rl.utils.trainer import Trainer
from embodichain.lab.gym.envs.managers.cfg import EventCfg
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.lab.gym.utils.gym_utils import DEFAULT_MANAGER_MODULES, config_to_cfg
from embodichain.lab.sim import SimulationManagerCfg
from embodichain.utils import logger
from embodichain.utils.module_utils import find_function_from_modules
from embodichain.utils.utility import load_json

EVENT_MODULES = [f"embodichain.lab.gym.envs.managers.{name}" for name in ("randomization", "record", "events")]


def read_events(block):
    """Make event configs, by name, of a block of the training config."""
    return {
        name: EventCfg(
            func=find_function_from_modules(event["func"], EVENT_MODULES, raise_if_not_found=True),
            mode=event.get("mode", "interval"),
            params=event.get("params", {}),
            interval_step=event.get("interval_step", 1),
        )
        for name, event in block.items()
    }


def build_networks(block, obs_dim, action_dim):
    """Build the networks that the policy's block describes."""
    networks = {"actor": build_mlp_from_cfg(block["actor"], obs_dim, action_dim)}
    if block["name"] == "actor_critic":
        networks["critic"] = build_mlp_from_cfg(block["critic"], obs_dim, 1)
    return networks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=str, required=True)
    config = json.loads(Path(parser.parse_args().config).read_text())
    cfg, policy_block, algo_block = config["trainer"], config["policy"], config["algorithm"]
    device = torch.device(cfg["device"])
    np.random.seed(cfg["seed"])
    torch.manual_seed(cfg["seed"])

    run = Path("outputs") / f"{cfg['exp_name']}_{time.strftime('%Y%m%d_%H%M%S')}"
    writer = SummaryWriter(str(run / "logs" / cfg["exp_name"]))

    gym_config = load_json(cfg["gym_config"])
    env_cfg = config_to_cfg(gym_config, manager_modules=DEFAULT_MANAGER_MODULES)
    env_cfg.num_envs = cfg["num_envs"]
    if env_cfg.sim_cfg is None:
        env_cfg.sim_cfg = SimulationManagerCfg()
    env_cfg.sim_cfg.sim_device = device
    env_cfg.sim_cfg.headless = cfg["headless"]
    env = build_env(gym_config["id"], base_env_cfg=env_cfg)
    obs, _ = env.reset()
    obs_dim = flatten_dict_observation(dict_to_tensordict(obs, device)).shape[-1]
    action_dim = env.get_wrapper_attr("action_manager").total_action_dim

    eval_env = None
    if cfg["enable_eval"]:
        eval_cfg = deepcopy(env_cfg)
        eval_cfg.num_envs = cfg["num_eval_envs"]
        eval_env = build_env(gym_config["id"], base_env_cfg=eval_cfg)

    networks = build_networks(policy_block, obs_dim, action_dim)
    policy = build_policy(policy_block, env.flattened_observation_space, env.action_space, device, **networks)
    algorithm = build_algo(algo_block["name"], algo_block["cfg"], policy, device, distributed=False)
    logger.log_info(f"policies: {get_registered_policy_names()}, algorithms: {get_registered_algo_names()}")

    trainer = Trainer(
        policy=policy,
        env=env,
        algorithm=algorithm,
        buffer_size=cfg["buffer_size"],
        batch_size=algo_block["cfg"]["batch_size"],
        writer=writer,
        eval_freq=cfg["eval_freq"] if cfg["enable_eval"] else 0,  # 0: no evaluation
        save_freq=cfg["save_freq"],
        checkpoint_dir=str(run / "checkpoints"),
        exp_name=cfg["exp_name"],
        use_wandb=cfg["use_wandb"],
        eval_env=eval_env,
        event_cfg=read_events(cfg.get("events", {}).get("train", {})),
        eval_event_cfg=read_events(cfg.get("events", {}).get("eval", {})),
        num_eval_episodes=cfg["num_eval_episodes"],
        distributed=False,
        rank=0,
        world_size=1,
    )
    try:
        trainer.train(cfg["iterations"] * cfg["buffer_size"] * env.num_envs)
    except KeyboardInterrupt:
        logger.log_info("interrupted")
    finally:
        trainer.save_checkpoint()
        writer.close()
        env.close()
        if eval_env is not None:
            eval_env.close()


if __name__ == "__main__":
    main()
