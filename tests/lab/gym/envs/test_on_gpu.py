"""On a GPU itself; skipped where there is none. Shapes: N environments."""

import pytest
import torch

from embodichain.agents.rl.collector import SyncCollector
from embodichain.agents.rl.models import build_policy
from embodichain.lab.gym.envs import EmbodiedEnv
from tests.lab.scenes import actions_for
from tests.lab.warp_scenes import CART, DRAWER, PICK, PUSH, env_on, needs_warp
from tests.no_sync import no_wait_for_the_gpu

pytestmark = [
    needs_warp,
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
N = 8
DEVICE = torch.device("cuda:0")
OTHERS = ["reach/gym_config.json", "go2_flat/gym_config.json", "go2_rough/gym_config.json", "hover/gym_config.json"]


@pytest.mark.parametrize("config", [PUSH, CART, DRAWER, "go2_flat/gym_config.json"])
def test_step_on_the_gpu_is_that_on_the_processor(config: str) -> None:
    envs = [env_on(engine, config, N) for engine in ("batch", "cuda")]
    for env in envs:
        env.reset(seed=2)
    for action in actions_for(envs[0], 3):
        for env in envs:
            env.step(action.to(env.device))
        one, other = (env.sim.backend for env in envs)
        torch.testing.assert_close(other.qpos.cpu(), one.qpos, atol=1e-4, rtol=0)
        torch.testing.assert_close(other.qvel.cpu(), one.qvel, atol=1e-3, rtol=0)


@pytest.mark.parametrize("config", [PUSH, CART, DRAWER, PICK, *OTHERS])
def test_rollout_never_waits_for_the_gpu(config: str) -> None:
    env: EmbodiedEnv = env_on("cuda", config, N, max_episode_steps=3)
    network = {"type": "mlp", "network_cfg": {"hidden_sizes": [8], "activation": "tanh"}}
    block = {"name": "actor_critic", "actor": network, "critic": network, "normalize_obs": True}
    policy = build_policy(block, env.flattened_observation_space, env.single_action_space, DEVICE)
    collector = SyncCollector(env, policy, DEVICE)
    collector.collect(5)
    env.divergences.report = lambda: None  # type: ignore[method-assign]  # once a rollout it may
    with no_wait_for_the_gpu():
        rollout = collector.collect(5)
    assert rollout["obs"].isfinite().all()
    assert (rollout["truncated"] | rollout["terminated"]).any()
