"""Distillation. Legend: N environments, T steps, O = 3 columns of the observation, A = 1."""

import math
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo.distillation import Distillation, DistillationCfg, Teacher
from embodichain.agents.rl.buffer import allocate_rollout
from embodichain.agents.rl.models import ActorCritic, ActorCriticRecurrent, ActorOnly, Policy
from embodichain.agents.rl.models.networks import Columns
from embodichain.utils import ConfigError

CPU = torch.device("cpu")


def linear(*weights: float) -> nn.Linear:
    """Return a linear map to one number."""
    layer = nn.Linear(len(weights), 1, bias=False)
    nn.init.zeros_(layer.weight)
    layer.weight.data[0] = torch.tensor(weights)
    return layer


def rollout(obs: torch.Tensor, **fields: torch.Tensor) -> TensorDict:
    """Return a rollout [N, T+1] with these observations, and actions of 99, which nothing may learn."""
    num_envs, num_slots, size = obs.shape
    state_size = fields["state"].shape[-1] if "state" in fields else 0
    data = allocate_rollout(num_envs, num_slots - 1, size, 1, CPU, state_size=state_size)
    data["action"].fill_(99)
    return data.update({"obs": obs, **fields})


def distillation(policy: Policy, teacher: Policy, columns: list[int], **settings: Any) -> Distillation:
    algorithm = Distillation(DistillationCfg(**settings), policy)
    algorithm.use_teacher(Teacher(teacher, torch.tensor(columns)))
    return algorithm


def test_loss_is_the_likelihood_of_the_teachers_actions() -> None:
    teacher = ActorOnly(2, 1, CPU, linear(1.0, 10.0))
    student = ActorOnly(3, 1, CPU, linear(0.5, 0.0, 0.0))
    obs = torch.tensor([[[1.0, 2.0, 3.0], [2.0, 0.0, 1.0], [7.0, 7.0, 7.0]]])  # the last one is the bootstrap
    losses = distillation(student, teacher, [2, 0], n_epochs=1).update(rollout(obs))
    # The teacher reads (x2, x0): 3 + 10 and 1 + 20; the student's means are 0.5 and 1, its std is 1.
    expected = 0.5 * math.log(2 * math.pi) + ((13 - 0.5) ** 2 + (21 - 1) ** 2) / 4
    assert losses["imitation_loss"] == pytest.approx(expected, rel=1e-6)
    # Adam's first step is the learning rate, 1e-3, in the gradient's direction: towards larger actions.
    after, taught = student.state_dict()["actor.weight"], teacher.state_dict()["actor.weight"]
    assert after[0, 0].item() == pytest.approx(0.501, abs=1e-6)
    assert taught.tolist() == [[1.0, 10.0]]


def test_rate_falls_to_zero_and_the_critic_does_not_learn() -> None:
    student = ActorCritic(3, 1, CPU, linear(0.0, 0.0, 0.0), linear(1.0, 2.0, 3.0))
    algorithm = distillation(student, ActorOnly(1, 1, CPU, linear(1.0)), [0], learning_rate=0.1)
    algorithm.progress = 0.75
    assert algorithm.update(rollout(torch.ones(2, 3, 3)))["learning_rate"] == pytest.approx(0.025)
    assert student.critic.weight.tolist() == [[1.0, 2.0, 3.0]]


def test_blind_student_remembers_what_its_teacher_sees() -> None:
    torch.manual_seed(1)
    cue = torch.randn(64, 1).sign().expand(64, 9).unsqueeze(2)  # all the time, for the teacher
    first = torch.zeros(64, 9, 1)
    first[:, [0, 4]] = cue[:, [0, 4]]  # where an episode begins, for the student
    done = torch.zeros(64, 9, dtype=torch.bool)
    done[:, 3] = True
    flipped = torch.cat((cue[:, :4], -cue[:, 4:]), dim=1)  # the second episode has another cue
    first[:, 4] *= -1
    obs = torch.cat((flipped, first), dim=2)
    student = ActorCriticRecurrent(
        2, 1, CPU, nn.GRUCell(1, 16), nn.Linear(17, 1), nn.Linear(18, 1), actor_columns=torch.tensor([1])
    )
    algorithm = distillation(student, ActorOnly(1, 1, CPU, linear(1.0)), [0], learning_rate=0.02, batch_size=128)
    data = rollout(obs, done=done, state=torch.zeros(64, 9, 16))
    for _ in range(8):
        losses = algorithm.update(data)
    assert losses["std"] < 0.3
    state = torch.zeros(64, 16)
    for t in range(8):
        given = TensorDict({"obs": obs[:, t], "state": state}, batch_size=[64])
        step = student.get_action(given, deterministic=True)
        state = step["next_state"].masked_fill(done[:, t, None], 0.0)
        assert torch.allclose(step["action"], flipped[:, t], atol=0.3)


def test_checkpoint_has_the_teacher() -> None:
    student, teacher = (ActorOnly(1, 1, CPU, linear(x)) for x in (0.0, 5.0))
    algorithm = distillation(student, teacher, [0])
    saved = algorithm.state_dict()
    other = distillation(student, ActorOnly(1, 1, CPU, linear(7.0)), [0])
    other.load_state_dict(saved)
    assert other.teacher(torch.ones(1, 1)).item() == 5.0


def test_columns_that_the_teacher_does_not_read_are_zero() -> None:
    teacher = Teacher(ActorOnly(2, 1, CPU, linear(5.0, 1.0)), torch.tensor([-1, 0]))
    assert teacher(torch.tensor([[3.0, 7.0]])).item() == 3.0


class OwnTanh(ActorOnly):
    """A user's policy, of which the likelihood is of what it has stored."""

    extra_fields = (("own", 1),)

    def __init__(self) -> None:
        super().__init__(3, 1, CPU, linear(0.0, 0.0, 0.0))

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        return super().evaluate_actions(td.copy().set("action", td["own"]))


def test_student_that_stores_its_own_sample_does_not_learn_from_that() -> None:
    data = rollout(torch.ones(1, 3, 3))
    data["own"] = torch.full((1, 3, 1), 99.0)
    with pytest.raises(KeyError, match="own"):
        distillation(OwnTanh(), ActorOnly(1, 1, CPU, linear(1.0)), [0]).update(data)


def test_other_teachers_and_students_are_refused() -> None:
    recurrent = ActorCriticRecurrent(1, 1, CPU, nn.GRUCell(1, 2), nn.Linear(3, 1), nn.Linear(3, 1))
    with pytest.raises(ConfigError, match="without a hidden state"):
        Teacher(recurrent, torch.tensor([0]))
    chunks = ActorOnly(1, 1, CPU, nn.Sequential(Columns(torch.tensor([0])), nn.Linear(1, 2)), chunk_length=2)
    with pytest.raises(ConfigError, match="single actions"):
        Distillation(DistillationCfg(), chunks)
