from __future__ import annotations

from embodichain.agents.rl.algo import AlgorithmCfg


def test_minibatch_may_be_as_large_as_the_rollout_and_no_larger() -> None:
    cfg = AlgorithmCfg(batch_size=8)
    assert cfg.check_run(num_envs=2, buffer_size=4) == []  # 2 x 4 = 8
    assert cfg.check_run(num_envs=1, buffer_size=7) == [
        "algorithm.cfg.batch_size: 8 is more than a rollout has: 1 environments (trainer.num_envs) x 7 steps "
        "(trainer.buffer_size) = 7"
    ]
