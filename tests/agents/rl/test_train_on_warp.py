"""Training whose physics is the GPU's engine, on the processor. Legend: N envs, T rollout steps."""

from pathlib import Path

import pytest
import torch

from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.collector import SyncCollector
from embodichain.agents.rl.models import build_policy
from embodichain.agents.rl.train import main
from tests.agents.rl.fakes import assert_same, read_metrics, tiny_config, write_config
from tests.lab.warp_scenes import CART, env_on, needs_warp
from tests.no_sync import no_host_sync, work_as_on_a_device

pytestmark = [needs_warp, pytest.mark.e2e]


def test_resumed_run_is_the_uninterrupted_one_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = []
    for name, lengths in (("whole", [3]), ("parts", [1, 3])):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        start = ["--config", write_config(Path(), tiny_config()), "trainer.sim_device=warp:cpu"]
        for length in lengths:
            assert main([*start, f"trainer.iterations={length}"]) == 0
            (folder,) = Path("outputs").iterdir()
            start = ["--resume", str(folder)]
        (checkpoint,) = folder.glob("checkpoints/*_step_24.pt")  # 3 iterations x 4 steps x 2 environments
        policies.append(load_checkpoint(checkpoint)["policy"])
        assert [line["charts/diverged_episodes"] for line in read_metrics(folder)] == [0.0] * 3
    assert_same(*policies)
    capsys.readouterr()
    assert main([*start, "trainer.iterations=4", "trainer.sim_device=cpu"]) == 2
    assert "the checkpoint's physics ran on mujoco_warp: resume it with the same sim_device" in capsys.readouterr().err


def test_device_of_the_physics_is_checked_with_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = write_config(Path(), tiny_config(trainer__device="auto"))
    assert main(["--config", config, "trainer.sim_device=cuda:0", "algorithm.cfg.gama=1"]) == 2
    error = capsys.readouterr().err
    assert "trainer.sim_device: 'cuda:0' cannot be used: CUDA is not available here" in error
    assert "algorithm.cfg.gama" in error
    assert main(["--config", config, "trainer.sim_device=gpu"]) == 2
    assert "trainer.sim_device: must be 'auto', 'cpu', 'cuda:<number>' or 'warp:cpu'" in capsys.readouterr().err


def test_rollout_never_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    work_as_on_a_device(monkeypatch)
    env = env_on("warp", CART, num_envs=4, max_episode_steps=3)
    network = {"type": "mlp", "network_cfg": {"hidden_sizes": [8], "activation": "tanh"}}
    policy = build_policy(
        {"name": "actor_critic", "actor": network, "critic": network, "normalize_obs": True},
        env.flattened_observation_space,
        env.single_action_space,
        torch.device("cpu"),
    )
    collector = SyncCollector(env, policy, "cpu")
    collector.collect(4)
    monkeypatch.setattr(env.divergences, "report", lambda: None)  # once a rollout it may
    with no_host_sync(monkeypatch):
        rollout = collector.collect(4)
    assert rollout["truncated"][:, :4].any()  # episodes of 3 steps ended
    assert (rollout["final_value"][rollout["truncated"]] != 0.0).all()
    env.close()
