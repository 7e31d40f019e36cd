"""MLPs computed by rows: the same outputs and gradients as by torch's own ways, whatever the number of threads."""

from __future__ import annotations

import threading
from itertools import chain

import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models import MLP, build_policy
from embodichain.agents.rl.models import mlp_by_rows as by_rows
from embodichain.agents.rl.models.block import Columns
from embodichain.agents.rl.models.mlp_by_rows import RowThreads, columns_and_mlp, mlps_by_rows
from embodichain.agents.rl.trainer.threads import update_threads


def gradients(networks: list[MLP], outputs: list[torch.Tensor], weights: list[torch.Tensor]) -> list[torch.Tensor]:
    parameters = [p for network in networks for p in network.parameters()]
    losses = [(output.float() * weight).sum() for output, weight in zip(outputs, weights, strict=True)]
    return list(torch.autograd.grad(losses, parameters))


@pytest.mark.parametrize("activation", ["elu", "relu", "tanh"])
@pytest.mark.parametrize("hidden_sizes", [[], [5], [8, 6, 4]])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("leading", [(7,), (1,), (4, 3)])
def test_outputs_and_gradients_are_autograds(activation, hidden_sizes, threads, leading) -> None:
    networks = [MLP(4, size, hidden_sizes, activation) for size in (3, 1)]
    x = torch.randn(*leading, 4)
    weights = [torch.randn(*leading, size) for size in (3, 1)]
    expected = [network(x) for network in networks]
    with RowThreads(threads) as rows:
        outputs = mlps_by_rows(networks, [x, x], rows)
        found = gradients(networks, outputs, weights)
    torch.testing.assert_close(outputs, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found, gradients(networks, expected, weights), rtol=1e-5, atol=1e-5)


def test_gradient_of_a_layer_by_hand() -> None:
    """y = w2 relu(w1 x) for x = 1 and -1 with w1 = 2, w2 = 3: only the first row has dy/dw1 = w2 x = 3, dy/dw2 = 2."""
    network = MLP(1, 1, [1], "relu")
    with torch.no_grad():
        for parameter, value in zip(network.parameters(), (2.0, 0.0, 3.0, 0.0), strict=True):
            parameter.fill_(value)
    with RowThreads(2) as rows:
        (y,) = mlps_by_rows([network], [torch.tensor([[1.0], [-1.0]])], rows)
        y.sum().backward()
    assert y.flatten().tolist() == [6.0, 0.0]
    assert [float(p.grad) for p in network.parameters() if p.grad is not None] == [3.0, 3.0, 2.0, 2.0]


def test_bfloat16_is_computed_as_autocast_does() -> None:
    networks = [MLP(16, size, [32, 32], "elu") for size in (3, 1)]
    x = torch.randn(64, 16)
    weights = [torch.randn(64, size) / 64 for size in (3, 1)]
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        expected = [network(x) for network in networks]
        with RowThreads(2) as rows:
            outputs = mlps_by_rows(networks, [x, x], rows)
            found = gradients(networks, outputs, weights)
    assert [output.dtype for output in outputs] == [torch.bfloat16] * 2
    assert {grad.dtype for grad in found} == {torch.float32}
    torch.testing.assert_close(outputs, expected, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(found, gradients(networks, expected, weights), rtol=5e-2, atol=2e-2)


def test_network_that_the_loss_does_not_need_gets_no_gradient() -> None:
    networks = [MLP(4, size, [5]) for size in (3, 1)]
    with RowThreads(2) as rows:
        _, value = mlps_by_rows(networks, [torch.randn(6, 4)] * 2, rows)
        value.sum().backward()
    assert all(p.grad is None for p in networks[0].parameters())
    assert all(p.grad is not None for p in networks[1].parameters())


def test_backward_twice_gives_the_same_and_needs_the_graph_kept() -> None:
    network = MLP(4, 3, [5], "elu")
    with RowThreads(2) as rows:
        (y,) = mlps_by_rows([network], [torch.randn(6, 4)], rows)
        first, second = (
            torch.autograd.grad(y.square().sum(), list(network.parameters()), retain_graph=keep)
            for keep in (True, False)
        )
        torch.testing.assert_close(first, second, rtol=0, atol=0)
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            y.sum().backward()


def test_parameters_changed_before_the_backward_pass_are_noticed() -> None:
    network = MLP(4, 3, [5], "elu")
    with RowThreads(2) as rows:
        (y,) = mlps_by_rows([network], [torch.randn(6, 4)], rows)
        with torch.no_grad():
            next(network.parameters()).add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_each_thread_has_rows_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rows_of: dict[str, list[int]] = {}
    linear = nn.functional.linear

    def seen(x: torch.Tensor, *args: torch.Tensor) -> torch.Tensor:
        rows_of.setdefault(threading.current_thread().name, []).append(len(x))
        assert torch.get_num_threads() == 1 or threading.current_thread() is threading.main_thread()
        return linear(x, *args)

    monkeypatch.setattr(by_rows, "linear", seen)
    with RowThreads(3) as rows:
        mlps_by_rows([MLP(4, 2, [5])], [torch.randn(7, 4)], rows)
    assert rows_of.pop(threading.main_thread().name) == [3, 3]  # a layer each
    assert sorted(chain(*rows_of.values())) == [1, 1, 3, 3]  # the others, or the one of them that was there first


def test_so_many_threads_give_the_same_bits_each_time() -> None:
    networks = [MLP(16, size, [64, 64], "elu") for size in (3, 1)]
    x, weights = torch.randn(200, 16), [torch.randn(200, size) for size in (3, 1)]
    with RowThreads(3) as rows:
        first, *others = (gradients(networks, mlps_by_rows(networks, [x, x], rows), weights) for _ in range(20))
    assert all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))


def test_layers_may_share_their_parameters() -> None:
    network = MLP(4, 4, [4, 4], "tanh")
    network[2] = network[0]
    x = torch.randn(6, 4)
    expected = torch.autograd.grad(network(x).sum(), list(network.parameters()))
    with RowThreads(2) as rows:
        (y,) = mlps_by_rows([network], [x], rows)
        torch.testing.assert_close(torch.autograd.grad(y.sum(), list(network.parameters())), expected)


def test_error_in_a_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(x: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("oh")
        return x

    monkeypatch.setattr(by_rows, "linear", fail)
    with RowThreads(2) as rows, pytest.raises(ValueError, match="oh"):
        mlps_by_rows([MLP(4, 4, [])], [torch.randn(6, 4)], rows)


def with_hook() -> MLP:
    network = MLP(4, 2, [5])
    network[0].register_forward_hook(lambda *_: None)
    return network


def with_own_forward(place: int | None = None) -> MLP:
    network = MLP(4, 2, [5])
    module = network if place is None else network[place]
    module.forward = lambda x: x
    return network


def with_layer(place: int, layer: nn.Module) -> MLP:
    network = MLP(4, 2, [5], "elu")
    network[place] = layer
    return network


@pytest.mark.parametrize(
    ("network", "can"),
    [
        (MLP(4, 2, [5]), True),
        (MLP(4, 2, []), True),
        (MLP(4, 2, [5], "gelu"), False),
        (MLP(4, 2, [5], layer_norm=True), False),
        (MLP(4, 2, [5], dropout=0.1), False),
        (MLP(4, 2, [5], last_activation="tanh"), False),
        (with_hook(), False),
        (with_own_forward(), False),
        (with_own_forward(2), False),
        (with_layer(1, nn.ELU(alpha=0.5)), False),
        (with_layer(2, nn.Linear(5, 2, bias=False)), False),
        (nn.Sequential(nn.Linear(4, 2)), False),
        (MLP(4, 2, [5]).to("meta"), False),
    ],
)
def test_what_can_be_computed_by_rows(network: nn.Module, can: bool) -> None:
    assert (columns_and_mlp(network) is not None) is can


def test_hook_of_all_modules_is_called() -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert columns_and_mlp(MLP(4, 2, [5])) is None
    finally:
        handle.remove()
    assert columns_and_mlp(MLP(4, 2, [5])) is not None


def test_network_of_some_columns_keeps_its_own_forward_and_hooks() -> None:
    def network() -> nn.Sequential:
        return nn.Sequential(Columns(torch.tensor([0, 2])), MLP(2, 1, [5]))

    own, hooked = network(), network()
    own.forward = lambda x: x  # type: ignore[method-assign]
    hooked.register_forward_hook(lambda *_: None)
    assert [columns_and_mlp(each) is not None for each in (network(), own, hooked)] == [True, False, False]


BLOCK = {
    "name": "actor_critic",
    "normalize_obs": True,
    "actor": {"type": "mlp", "network_cfg": {"hidden_sizes": [8], "activation": "elu"}},
    "critic": {"type": "mlp", "network_cfg": {"hidden_sizes": [8], "activation": "elu"}},
}


def evaluated(policy, td: TensorDict) -> dict[str, torch.Tensor]:
    policy.zero_grad()
    out = policy.evaluate_actions(td)
    (out["sample_log_prob"].mean() + out["value"].square().mean()).backward()
    return {name: p.grad for name, p in policy.named_parameters()} | {"log_prob": out["sample_log_prob"].detach()}


@pytest.mark.parametrize("name", ["actor_critic", "actor_only"])
@pytest.mark.parametrize("groups", [None, {"actor": ["robot/*"]}])
def test_policies_take_their_rows_in_threads(monkeypatch: pytest.MonkeyPatch, name: str, groups) -> None:
    robot = spaces.Dict({"qpos": spaces.Box(-1, 1, (3,)), "qvel": spaces.Box(-1, 1, (3,))})
    observation = spaces.Dict({"robot": robot, "goal": spaces.Box(-1, 1, (2,))})
    cfg = {key: value for key, value in BLOCK.items() if name == "actor_critic" or key != "critic"}
    cfg |= {"name": name} | ({} if groups is None else {"obs_groups": groups})
    policy = build_policy(cfg, 8, 2, "cpu", observation_space=observation)
    td = TensorDict({"obs": torch.randn(9, 8), "action": torch.randn(9, 2)}, batch_size=[9])
    used: list[int] = []

    def watched(networks: list[MLP], inputs: list[torch.Tensor], rows: RowThreads) -> list[torch.Tensor]:
        used.append(len(networks))
        return mlps_by_rows(networks, inputs, rows)

    monkeypatch.setattr(by_rows, "mlps_by_rows", watched)
    expected = evaluated(policy, td)
    assert not used
    with update_threads(policy, 2):
        found = evaluated(policy, td)
        assert used
        with torch.no_grad():
            policy.evaluate_actions(td)
        with torch.autograd.set_detect_anomaly(True):  # that a failing layer can be named
            policy.evaluate_actions(td)
        policy.evaluate_actions(td.clone().update({"obs": td["obs"].clone().requires_grad_()}))
        assert len(used) == 1
    assert found.keys() == expected.keys()
    for key in (key for key, value in expected.items() if value is not None):
        torch.testing.assert_close(found[key], expected[key], rtol=1e-4, atol=1e-6)
