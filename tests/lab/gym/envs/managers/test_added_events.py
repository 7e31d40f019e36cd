"""Events added to an environment that is built already. Shapes: N environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import Functor
from embodichain.lab.gym.envs.managers.cfg import EventCfg, SceneEntityCfg
from embodichain.lab.gym.envs.managers.record import recorders_in
from embodichain.utils import ConfigError
from tests.lab.scenes import BOX, cart_cfg
from tests.lab.warp_scenes import CART, env_on, needs_warp


class Note(Functor):
    """Writes down whom it is called for, and what it draws."""

    def __init__(self, cfg: Any, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        self.calls: list[tuple[list[int], list[float]]] = []
        self.resets: list[list[int]] = []

    def __call__(self, env: EmbodiedEnv, env_ids: Tensor) -> None:
        self.calls.append((env_ids.tolist(), env.random.uniform(env_ids, 0.0, 1.0, 1)[:, 0].tolist()))

    def reset(self, env_ids: Tensor) -> None:
        self.resets.append(env_ids.tolist())


def note_of(env: EmbodiedEnv) -> Note:
    note = env.event_manager.functors[-1]
    assert isinstance(note, Note)
    return note


def steps(env: EmbodiedEnv, count: int) -> None:
    for _ in range(count):
        env.step(torch.zeros(env.num_envs, 1))


def run(env: EmbodiedEnv) -> Note:
    """Reset, 2 steps, reset environment 1, 3 steps of episodes of 4."""
    note = note_of(env)
    note.calls.clear()
    note.resets.clear()
    env.reset(seed=1)
    steps(env, 2)
    env.reset(options={"reset_ids": [1]})
    steps(env, 3)
    return note


@pytest.mark.parametrize("mode", ["reset", "interval"])
def test_added_event_does_and_draws_what_it_would_in_the_config(mode: str) -> None:
    event: dict[str, Any] = {"mode": mode, "interval_step": 3}
    configured = EmbodiedEnv(cart_cfg(2, {"events": {"note": {"func": Note} | event}}, max_episode_steps=4))
    added = EmbodiedEnv(cart_cfg(2, max_episode_steps=4))
    added.reset(seed=7)
    added.add_events({"note": EventCfg(func=Note, **event)})
    one, other = run(configured), run(added)
    assert one.calls == other.calls != []
    assert one.resets == other.resets == [[0, 1], [1], [0]]


def test_added_startup_event_happens_at_once_and_once() -> None:
    env = EmbodiedEnv(cart_cfg(3))
    env.add_events({"note": EventCfg(func=Note, mode="startup")})
    env.reset()
    steps(env, 2)
    assert [ids for ids, _ in note_of(env).calls] == [[0, 1, 2]]


def test_startup_event_of_the_config_does_not_happen_again() -> None:
    env = EmbodiedEnv(cart_cfg(3, {"events": {"first": {"func": Note, "mode": "startup"}}}))
    env.add_events({"second": EventCfg(func=Note, mode="startup")})
    assert [len(functor.calls) for functor in env.event_manager.functors if isinstance(functor, Note)] == [1, 1]


def test_episodes_begin_after_events_were_added() -> None:
    env = EmbodiedEnv(cart_cfg(2))
    env.reset()
    env.add_events({"note": EventCfg(func=Note)})
    with pytest.raises(RuntimeError, match=r"call reset\(\) before step"):
        steps(env, 1)


def test_added_recorder_is_named_as_in_configs_and_started_with_the_others(tmp_path: Path) -> None:
    env = EmbodiedEnv(cart_cfg(1))
    params = {"name": "cam", "resolution": (32, 24), "max_frames": 2}
    camera = EventCfg(func="record_camera_data", mode="interval", interval_step=1, params=params)
    env.add_events({"camera": camera})
    env.reset()
    env.start_recording(tmp_path, "x")
    (recorder,) = recorders_in(env.event_manager.functors)
    assert recorder._folder == tmp_path
    env.close()


def far(env: EmbodiedEnv, env_ids: Tensor, thing: SceneEntityCfg, way: float) -> None:
    env.sim.get_rigid_object(thing.uid)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (EventCfg(func=far, params={"thing": {"uid": "bxo"}, "way": 1.0}), r"^events\.new\.params\.thing\.uid: no"),
        (EventCfg(func=far, params={"thing": SceneEntityCfg(uid="bxo"), "way": 1.0}), r"Did you mean 'box'\?"),
        (EventCfg(func=far, params={"thing": {"uid": "box"}}), r"^events\.new\.params\.way: required, but missing$"),
        (EventCfg(func="record_camera"), r"^events\.new\.func: unknown function .record_camera.\. Did you mean"),
        (
            EventCfg(func="replace_assets_from_group", params={"entity_cfg": {"uid": "box"}, "folder_path": "."}),
            r"^events\.new\.func: 'replace_assets_from_group' prepares the scene .* put it into .* env\.events$",
        ),
    ],
)  # fmt: skip
def test_event_that_cannot_be_added_is_refused_in_a_line(event: EventCfg, message: str) -> None:
    env = EmbodiedEnv(cart_cfg(2, rigid_object=[BOX]))
    env.reset()
    with pytest.raises(ConfigError, match=message):
        env.add_events({"fine": EventCfg(func=Note), "new": event})
    assert env.event_manager.functors == []  # all or none
    steps(env, 1)


def test_name_of_another_event_is_refused() -> None:
    env = EmbodiedEnv(cart_cfg(2, {"events": {"note": {"func": Note}}}))
    env.add_events({"second": EventCfg(func=Note)})
    for name in ("note", "second"):
        with pytest.raises(ConfigError, match=rf"^events\.{name}: the environment has an event of that name already$"):
            env.add_events({name: EventCfg(func=Note)})


class Marks(Functor):
    """Counts each environment's episodes."""

    def __init__(self, cfg: Any, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        self.count = torch.zeros(env.num_envs)

    def __call__(self, env: EmbodiedEnv, env_ids: Tensor) -> None:
        self.count[env_ids] += 1


@needs_warp
def test_added_event_keeps_its_other_rows() -> None:
    env = env_on("warp", CART, 3, max_episode_steps=2)
    env.add_events({"marks": EventCfg(func=Marks)})
    env.reset(seed=1)
    env.elapsed_steps += torch.tensor([0, 1, 0])
    steps(env, 1)
    (marks,) = env.event_manager.functors
    assert isinstance(marks, Marks)
    assert marks.count.tolist() == [1.0, 2.0, 1.0]
    env.close()
