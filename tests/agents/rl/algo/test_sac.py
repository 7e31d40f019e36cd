"""How often SAC learns, how far, and its state; see ``linear_sac.py``. Legend: N envs, T rollout steps, B batch."""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn

from embodichain.agents.rl.algo import SAC, SACCfg
from embodichain.agents.rl.buffer import Demonstrations
from embodichain.agents.rl.models import MLP, SoftActorCritic, build_policy
from embodichain.agents.rl.models.networks import Layers, MLPs, SimBa
from embodichain.agents.rl.models.squash import TanhSquash
from embodichain.utils import ConfigError
from tests.agents.rl.algo.linear_sac import (
    SameBatch,
    check_continues,
    make_batch,
    make_rollout,
    make_sac,
    update,
    weight_of,
)
from tests.agents.rl.fakes import assert_same
from tests.no_sync import no_host_sync


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Let the sampled actions, by which a gradient's sign may differ, not depend on the tests before."""
    torch.manual_seed(0)


def test_fractions_of_gradient_steps_are_carried_over() -> None:
    # 0.375 * 4 = 1.5 gradient steps for each rollout of 4 steps: 1, 2, 1, 2, of the critics and of the actor.
    sac = make_sac(updates_per_step=0.375)
    counts = []
    for _ in range(4):
        update(sac, num_steps=4)
        counts.append(sac.take_step_counts())
    assert counts == [[(n, 0)] * 2 for n in (1, 2, 1, 2)]


def test_frozen_parameters_of_a_critic_stay() -> None:
    policy = make_sac().policy
    frozen, *others = policy.critics.parameters()
    frozen.requires_grad_(False)
    before = frozen.clone()
    update(SAC(SACCfg(batch_size=2, learning_starts=0, replay_capacity=100, weight_decay=0.1), policy))
    assert not frozen.requires_grad
    assert frozen.equal(before)
    assert all(other.requires_grad for other in others)


def test_normalised_returns_scale_the_samples_rewards() -> None:
    sac = make_sac(normalize_returns=True)
    assert sac.return_scale is not None
    update(sac)
    sac.return_scale.mean.fill_(4.0)
    sac.return_scale.std.fill_(2.0)
    two = (1.0, 1.0)
    replay: Any = SameBatch(make_batch(two, two, reward=(2.0, 6.0), discount=(0.5, 0.0), behind=two))
    # (2 - 4 / 2) / 2, and (6 - 4) / 2 after a termination
    assert sac._sample(replay, 1)["reward"].tolist() == [[0.0, 1.0]]
    other = make_sac(normalize_returns=True)
    other.load_state_dict(copy.deepcopy(sac.state_dict()))
    assert other.return_scale is not None
    assert other.return_scale.std.item() == 2


def test_actor_and_temperature_step_once_per_policy_delay() -> None:
    sac = make_sac(policy_delay=2)
    metrics = update(sac, num_steps=3)
    assert sac.take_step_counts() == [(1, 0), (3, 0)]  # of the second of three
    assert "actor_loss" in metrics
    metrics = update(sac)
    assert sac.take_step_counts() == [(1, 0)] * 2  # the fourth
    metrics = update(sac)
    assert sac.take_step_counts() == [(1, 0)]
    assert set(metrics) == {"replay_steps", "critic_loss", "action_value", "grad_norm"}


def test_linear_step_sizes_of_all_optimizers_fall_to_nothing() -> None:
    sac = make_sac(lr_schedule="linear", learning_rate=0.01, critic_learning_rate=0.04)
    for sac.progress in (0.0, 0.75):
        update(sac)
        shares = [
            [group["lr"] / rate for group in optimizer.param_groups]
            for optimizer, rate in ((sac.actor_optimizer, 0.01), (sac.critic_optimizer, 0.04))
        ]
        assert shares == [[1 - sac.progress] * 2, [1 - sac.progress]]  # the actor's, the temperature's, the critics'


def test_nothing_is_learned_before_the_first_steps_are_collected() -> None:
    sac = make_sac(learning_starts=8, learning_rate=0.1)
    before = copy.deepcopy(sac.policy.state_dict())
    assert sac.update(make_rollout(num_steps=4)) == {"replay_steps": 4}
    assert sac.take_step_counts() == []
    assert_same(dict(sac.policy.state_dict()), dict(before))
    assert sac.update(make_rollout(num_steps=4))["replay_steps"] == 8
    assert sac.take_step_counts() == [(4, 0)] * 2  # for the 4 steps of this rollout, not those before


def test_learning_begins_by_collected_not_by_stored_steps() -> None:
    # Every step is truncated, and takes two slots: of 8 slots 4 are steps. All processes must begin together.
    sac = make_sac(learning_starts=8, replay_capacity=8)
    counts = []
    for _ in range(2):
        rollout = make_rollout(num_steps=4)
        rollout["truncated"][:, :-1] = True
        counts.append(sac.update(rollout)["replay_steps"])
    assert counts == [4, 4]
    assert sac.take_step_counts() == [(4, 0)] * 2


def test_targets_move_by_tau_towards_the_critics() -> None:
    sac = make_sac(critics=((1.0, 2.0),), tau=0.25)
    weight_of(sac.target_critics[0]).data = torch.zeros(1, 2)
    update(sac)
    assert weight_of(sac.target_critics[0]).tolist() == [[0.25, 0.5]]
    update(sac)
    assert weight_of(sac.target_critics[0]).tolist() == [[0.4375, 0.875]]  # 0.25 + 0.25 * 0.75, twice that


def test_targets_follow_the_critics_as_they_are_after_the_step() -> None:
    sac = make_sac(learning_rate=0.1, tau=1.0)
    update(sac)
    for critic, target in zip(sac.policy.critics, sac.target_critics, strict=True):
        assert torch.equal(weight_of(critic), weight_of(target))
    assert weight_of(sac.policy.critics[0])[0, 0].item() == pytest.approx(0.6)  # Adam's first step is the learning rate


@pytest.mark.parametrize(("limit", "cut"), [(None, False), (0.5, True)])
def test_gradients_are_cut_to_a_norm_if_there_is_a_limit(limit: float | None, cut: bool) -> None:
    sac = make_sac(max_grad_norm=limit, initial_temperature=10.0)
    metrics = update(sac)
    networks = {"grad_norm": sac.policy.critics, "actor_grad_norm": sac.policy.actor}
    for name, network in networks.items():
        norm = torch.stack([p.grad.norm() for p in network.parameters() if p.grad is not None]).norm().item()
        assert metrics[name] > 0.5  # before it is cut
        assert norm == pytest.approx(0.5 if cut else metrics[name], rel=1e-4)


def test_critic_step_that_is_not_finite_is_skipped_and_counted() -> None:
    sac = make_sac(learning_rate=0.1)
    before = copy.deepcopy(sac.policy.critics.state_dict())
    update(sac, make_batch(reward=(math.nan,)))
    assert sac.take_step_counts() == [(1, 0), (1, 1)]
    assert_same(dict(sac.policy.critics.state_dict()), dict(before))
    assert math.isfinite(update(sac)["critic_loss"])


def test_loaded_state_continues_to_the_last_bit() -> None:
    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "learning_rate": 0.01,
        "updates_per_step": 0.375,
        "policy_delay": 2,
        "n_steps": 2,
        "batch_size": 8,
    }
    ours, theirs = make_sac(**settings), make_sac(**settings, critics=((0.0, 0.0), (1.0, 1.0)))
    check_continues(ours, theirs)
    # 3.75 gradient steps a rollout
    assert (ours.state_dict()["num_updates"], ours.state_dict()["owed"]) == (11, 0.25)


def test_gradient_steps_do_not_make_the_host_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    sac = make_sac(learning_rate=0.01, max_grad_norm=1.0, policy_delay=2)
    sac.update(make_rollout(2, 4))
    monkeypatch.setattr("embodichain.agents.rl.models.distributions.bounded", lambda x, low, high: x)  # CPU only
    assert sac.replay is not None
    with no_host_sync(monkeypatch):
        for _ in range(2):
            batch = sac.replay.sample(4, 2, 0.5)
            sac._improve_critics(batch)
            sac._improve_actor(batch)


def test_weight_decay_shrinks_networks_and_not_the_temperature() -> None:
    # Critics without a gradient, and a rate of 0.1: each step multiplies by 1 - 0.1 * 0.5.
    sac = make_sac(critics=((1.0, 0.0),), learning_rate=0.1, weight_decay=0.5, tau=1.0, entropy_in_targets=False)
    same = make_sac(critics=((1.0, 0.0),), learning_rate=0.1, tau=1.0, entropy_in_targets=False)
    for each in (sac, same):
        torch.manual_seed(0)
        update(each, make_batch(reward=(1.0,), discount=(0.0,)))  # y = Q = 1
    assert weight_of(sac.policy.critics[0]).tolist() == [[pytest.approx(0.95), 0.0]]
    assert weight_of(same.policy.critics[0]).tolist() == [[1.0, 0.0]]
    difference = weight_of(same.policy.actor) - weight_of(sac.policy.actor)  # 0.05 of 0.3 and 0.2
    torch.testing.assert_close(difference, torch.tensor([[0.015], [0.01]]))
    assert torch.equal(sac.temperature.log, same.temperature.log)


def test_action_space_of_any_size_is_a_box() -> None:
    wide = spaces.Box(np.array([-2.0], np.float32), np.array([6.0], np.float32))
    sac = make_sac(critics=((0.0, 1.0),), action_space=wide, entropy_in_targets=False)
    # Q = (a - 2) / 4 at a = 4: 0.5; y = r = 2
    assert update(sac, make_batch(action=(4.0,), discount=(0.0,)))["critic_loss"] == pytest.approx(2.25)


CRITICS: dict[str, Callable[[], Layers]] = {
    "mlp": lambda: MLP(2, 1, [16, 8], "elu"),
    "mlp with layer norm": lambda: MLP(2, 1, [16, 8], "elu", layer_norm=True),
    "simba": lambda: SimBa(2, 1, 8),
}


@pytest.mark.parametrize("kind", CRITICS)
@pytest.mark.parametrize("num_critics", [1, 2, 3])
def test_critics_side_by_side_learn_as_one_by_one(kind: str, num_critics: int) -> None:
    """Five updates of 2 gradient steps; the plain form has each critic's layers and Adam's state of its own."""
    torch.manual_seed(0)
    critics = [CRITICS[kind]() for _ in range(num_critics)]
    actor = MLP(1, 2, [16], "tanh")
    settings: dict[str, Any] = {"batch_size": 32, "learning_starts": 0, "replay_capacity": 100, "weight_decay": 0.1}
    cfg = SACCfg(**settings, learning_rate=0.01, updates_per_step=0.25)

    def make(networks: list[nn.Module]) -> SAC:
        settings = TanhSquash(spaces.Box(-1, 1, (1,))), False, 0.0, (-5.0, 2.0)
        return SAC(cfg, SoftActorCritic(1, 1, "cpu", copy.deepcopy(actor), networks, *settings))

    together, plain = make([*critics]), make([nn.Sequential(*copy.deepcopy(critic)) for critic in critics])
    assert isinstance(together.policy.critics, MLPs)
    rollouts = [make_rollout(2, 4) for _ in range(5)]
    for sac in (together, plain):
        torch.manual_seed(1)
        for rollout in rollouts:
            sac.update(rollout)
    batch = rollouts[0].select("obs", "action")
    values = [sac.policy.action_values(batch, batch["action"]) for sac in (together, plain)]
    torch.testing.assert_close(*values, atol=1e-6, rtol=1e-6)
    targets = [sac.policy.action_values(batch, batch["action"], sac.target_critics) for sac in (together, plain)]
    torch.testing.assert_close(*targets, atol=1e-6, rtol=1e-6)
    for ours, theirs in zip(together.policy.actor.parameters(), plain.policy.actor.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)


EXPERT_OBS = 100.0


def shown(first: float = EXPERT_OBS) -> Demonstrations:
    """Return an episode of 3 steps that ends with the reward 1."""
    fields = {
        "obs": first + torch.arange(4.0)[:, None],
        "action": torch.zeros(4, 1),
        "reward": torch.tensor([0.0, 0.0, 1.0, 0.0]),
        "terminated": torch.tensor([False, False, True, False]),
    }
    return Demonstrations([TensorDict(fields, batch_size=[4]).unsqueeze(0)], 1)


def make(**settings: Any) -> SAC:
    sac = make_sac(demonstrations="expert", **{"batch_size": 8, **settings})
    sac.use_demonstrations(shown())
    return sac


def batches(sac: SAC, monkeypatch: pytest.MonkeyPatch, num_steps: int = 4) -> list[TensorDict]:
    """Return the batches of the gradient steps for a rollout."""
    found: list[TensorDict] = []
    improve = sac._improve_critics

    def keeping(batch: TensorDict) -> dict[str, torch.Tensor]:
        found.append(batch.clone())
        return improve(batch)

    monkeypatch.setattr(sac, "_improve_critics", keeping)
    sac.update(make_rollout(num_steps=num_steps))
    return found


@pytest.mark.parametrize(("share", "size", "count"), [(0.5, 8, 4), (0.25, 8, 2), (0.5, 5, 2)])
def test_share_of_every_batch_is_of_demonstrations(
    share: float, size: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = batches(make(demonstration_share=share, batch_size=size), monkeypatch)
    assert len(found) == 4
    for batch in found:
        assert batch.batch_size == (size,)
        is_shown = batch["obs"].squeeze(1) > EXPERT_OBS / 2
        assert is_shown.tolist() == [False] * (size - count) + [True] * count


def test_demonstrations_have_the_same_returns_as_own_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = TensorDict.cat(batches(make(n_steps=2, batch_size=64), monkeypatch))
    rows = {
        obs: (reward, discount)
        for obs, reward, discount in zip(
            batch["obs"].squeeze(1).tolist(), batch["reward"].tolist(), batch["discount"].tolist(), strict=True
        )
        if obs > EXPERT_OBS / 2
    }
    # gamma 0.5: two steps without a reward; 0 + 0.5 * 1 and the end; 1 and the end.
    assert rows == {100.0: (0.0, 0.25), 101.0: (0.5, 0.0), 102.0: (1.0, 0.0)}


def test_checkpoint_is_loaded_with_the_same_demonstrations_alone() -> None:
    sac, same, other = make(), make(), make_sac(demonstrations="expert", batch_size=8)
    other.use_demonstrations(shown(first=101.0))
    state = sac.state_dict()
    same.load_state_dict(state)
    for wrong in (other, make_sac(demonstrations="expert", batch_size=8)):
        with pytest.raises(ConfigError, match=r"demonstrations: expert: are not the run's"):
            wrong.load_state_dict(state)


@pytest.mark.parametrize(("weight", "imitated"), [(2.0, 1.0), (-2.0, 0.0)])
def test_imitation_by_hand(weight: float, imitated: float) -> None:
    # Critics Q = weight * a: more is better, or worse. The expert's actions are 0.8; the actor's mean is tanh(0.3 s).
    sac = make(critics=((0.0, weight), (0.0, weight)), imitation_coef=0.5)
    shown_batch = TensorDict({"obs": torch.tensor([[0.0], [1.0]]), "action": torch.tensor([[0.8], [0.8]])}, [2])
    found = sac._imitate(sac.policy.encode(shown_batch))
    # ((0.8 - 0)^2 + (0.8 - tanh 0.3)^2) / 2
    expected = imitated * (0.64 + (0.8 - math.tanh(0.3)) ** 2) / 2
    assert found["imitation_loss"].item() == pytest.approx(expected)
    assert found["imitated"].item() == imitated


def test_imitation_measures_actions_scaled_to_their_bounds() -> None:
    sac = make(critics=((0.0, 1.0), (0.0, 1.0)), imitation_coef=0.5, action_space=spaces.Box(0, 10, (1,)))
    # The actor's mean for s = 0 is the bounds' middle, 5; 7.5 is 0.5 of the half range above it.
    sac._demonstrations = None
    replay: Any = SameBatch(make_batch(obs=(0.0,), action=(7.5,)))
    (batch,) = sac._batches(replay, 1)
    assert sac._imitate(batch)["imitation_loss"].item() == pytest.approx(0.25)


def gradient_of(network: nn.Module) -> torch.Tensor:
    gradient = weight_of(network).grad
    assert gradient is not None
    return gradient


def test_imitation_pulls_the_actor_and_no_critic_and_is_logged() -> None:
    def learn(coef: float) -> tuple[SAC, dict[str, float]]:
        torch.manual_seed(0)
        # Lower actions are worth a little more, and the expert's, 0, are lower than the actor's, tanh(0.3 s).
        critics = ((0.0, -1e-6), (0.0, -1e-6))
        sac = make_sac(critics, demonstrations="expert", imitation_coef=coef, batch_size=8, initial_temperature=1e-9)
        sac.use_demonstrations(shown(first=1.0))
        return sac, sac.update(make_rollout())

    plain, metrics = learn(0.0)
    assert not {"imitation_loss", "imitated"} & set(metrics)
    pulled, metrics = learn(1.0)
    assert metrics["imitated"] == 1.0
    gradients = [gradient_of(sac.policy.actor)[0].item() for sac in (plain, pulled)]
    assert abs(gradients[0]) < 1e-5 < 0.01 < gradients[1]  # descended, it lowers the mean
    for one, other in zip(plain.policy.critics, pulled.policy.critics, strict=True):
        assert torch.equal(gradient_of(one), gradient_of(other))


B = 4
MLP_BLOCK: dict[str, Any] = {"type": "mlp", "network_cfg": {"hidden_sizes": [5]}}
ENCODER: dict[str, Any] = {
    "keys": ["camera"],
    "network_cfg": {"channels": [2], "kernel_sizes": [2], "strides": [2]},
    "num_features": 3,
}
SPACE = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "camera": spaces.Box(0, 255, (4, 4, 3), np.uint8)})


def make_from_images(**settings: Any) -> SAC:
    torch.manual_seed(0)
    block = {"name": "soft_actor_critic", "actor": MLP_BLOCK, "critic": MLP_BLOCK, "encoder": ENCODER}
    policy = build_policy(block, 2, spaces.Box(-1, 1, (1,)), "cpu", observation_space=SPACE)
    return SAC(SACCfg(learning_starts=0, batch_size=B, **settings), policy)


def observed() -> TensorDict:
    camera = torch.randint(256, (B, 4, 4, 3), dtype=torch.uint8)
    return TensorDict({"obs": torch.randn(B, 2), "entries": TensorDict({"camera": camera}, [B])}, [B])


def make_images() -> TensorDict:
    fields = {"action": torch.rand(B, 1), "reward": torch.ones(B), "discount": torch.full((B,), 0.5)}
    return observed().update({**fields, "next": observed()})


def weights(sac: SAC, part: str) -> Tensor:
    return torch.cat([p.detach().flatten().clone() for p in sac.policy.get_submodule(part).parameters()])


@pytest.mark.parametrize(
    ("rates", "moved"),
    [
        ({"critic_learning_rate": 0.1, "learning_rate": 1e-30}, {"encoder": True, "critics": True, "actor": False}),
        ({"critic_learning_rate": 1e-30, "learning_rate": 0.1}, {"encoder": False, "critics": False, "actor": True}),
    ],
)
def test_the_critics_alone_train_the_encoder(rates: dict[str, float], moved: dict[str, bool]) -> None:
    sac = make_from_images(**rates)
    before = {part: weights(sac, part) for part in moved}
    update(sac, make_images())
    # A rate of 1e-30 moves biases of 0 by as little.
    assert {part: not torch.allclose(weights(sac, part), before[part], atol=1e-9) for part in moved} == moved


def test_images_are_encoded_once_in_a_gradient_step() -> None:
    sac, calls = make_from_images(), []
    assert sac.policy.encoder is not None
    sac.policy.encoder.register_forward_hook(lambda module, given, out: calls.append(out.requires_grad))
    update(sac, make_images(), num_steps=3)
    assert calls == [True, False] * 3  # targets have no gradient
