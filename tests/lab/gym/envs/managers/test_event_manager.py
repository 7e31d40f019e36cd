"""When events happen, and what they draw. Shapes: N environments."""

from contextlib import nullcontext
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


class Note(Functor):
    """Writes down a draw for the environments it is called for."""

    def __init__(self, cfg: Any, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        self.calls: list[tuple[list[int], list[float]]] = []
        self.resets: list[list[int]] = []

    def __call__(self, env: EmbodiedEnv, env_ids: Tensor) -> None:
        self.calls.append((env_ids.tolist(), env.random.uniform(env_ids, 0.0, 1.0, 1)[:, 0].tolist()))

    def reset(self, env_ids: Tensor) -> None:
        self.resets.append(env_ids.tolist())


def noted(
    mode: str, num_envs: int = 2, name: str = "note", max_episode_steps: int | None = 4, **cfg: Any
) -> tuple[EmbodiedEnv, Note]:
    events = {name: {"func": Note, "mode": mode, **cfg}}
    env = EmbodiedEnv(cart_cfg(num_envs, {"events": events}, max_episode_steps=max_episode_steps))
    functor, *_ = env.event_manager.functors
    assert isinstance(functor, Note)
    if mode != "startup":
        functor.calls.clear()
        functor.resets.clear()
    return env, functor


def steps(env: EmbodiedEnv, count: int) -> None:
    for _ in range(count):
        env.step(torch.zeros(env.num_envs, 1))


def test_startup_event_happens_once_for_all_envs() -> None:
    env, note = noted("startup")
    env.reset(seed=1)
    steps(env, 5)
    assert [ids for ids, _ in note.calls] == [[0, 1]]


def test_startup_event_draws_for_each_episode_of_an_evaluation() -> None:
    draws = []
    for num_envs, training_seed in ((2, 7), (3, 8)):
        env, note = noted("startup", num_envs)
        env.reset(seed=training_seed)
        note.calls.clear()
        env.reset(seed=1, options={"enumerate_episodes": True})
        steps(env, 4)
        draws.append([draw for _, values in note.calls for draw in values])
    two, three = draws
    assert len(set(three)) == 6
    assert two == three[:4]


def test_startup_event_of_an_evaluation_sees_the_initial_state() -> None:
    seen = []
    event = {"func": lambda env, env_ids: seen.append(env.robot.get_qpos()), "mode": "startup"}
    env = EmbodiedEnv(cart_cfg(2, {"events": {"see": event}}))
    env.reset(seed=1, options={"enumerate_episodes": True})
    env.robot.set_qpos(torch.ones(2, 2), target=False)
    env.reset(seed=1, options={"enumerate_episodes": True})
    assert torch.equal(seen[0], seen[-1])


@pytest.mark.parametrize("options", [{}, {"enumerate_episodes": True}])
def test_reset_undoes_what_a_startup_event_did_to_the_pose(options: dict[str, Any]) -> None:
    events = {"turn": {"func": "randomize_robot_qpos", "mode": "startup", "params": {"qpos_range": [[0.1], [0.2]]}}}
    env = EmbodiedEnv(cart_cfg(2, {"events": events}))
    env.reset(seed=1, options=options)
    assert torch.equal(env.robot.get_qpos(), env.robot.body_data.default_qpos)


def test_reset_event_happens_for_the_envs_whose_episodes_begin() -> None:
    env, note = noted("reset")
    env.reset(seed=1)
    steps(env, 2)
    env.reset(options={"reset_ids": [1]})
    steps(env, 2)  # env 0 reaches its limit of 4
    assert [ids for ids, _ in note.calls] == note.resets == [[0, 1], [1], [0]]
    draws = [draw for _, values in note.calls for draw in values]
    assert len(set(draws)) == 4


def test_reset_draws_depend_neither_on_num_envs_nor_on_terms() -> None:
    env, note = noted("reset", num_envs=3)
    env.reset(seed=1)
    few, few_note = noted("reset", num_envs=1)
    few.reset(seed=1)
    assert few_note.calls[0][1] == note.calls[0][1][:1]
    events = {"other": {"func": Note}, "note": {"func": Note}}
    both = EmbodiedEnv(cart_cfg(3, {"events": events}))
    both.reset(seed=1)
    other_note, same_note = both.event_manager.functors
    assert isinstance(other_note, Note)
    assert isinstance(same_note, Note)
    assert same_note.calls[-1] == note.calls[0]
    assert other_note.calls[-1] != note.calls[0]


def test_interval_event_happens_by_each_envs_own_episode() -> None:
    env, note = noted("interval", interval_step=3)  # episodes of 4 steps
    env.reset(seed=1)
    steps(env, 2)
    env.reset(options={"reset_ids": [1]})
    steps(env, 5)
    # env 0's episodes begin at steps 0 and 4, env 1's at 2 and 6: their third steps are 3, 7 and 5
    assert [ids for ids, _ in note.calls] == [[0], [1], [0]]
    assert len({draw for _, values in note.calls for draw in values}) == 3


def test_interval_draws_depend_on_the_env_and_its_episode_alone() -> None:
    env, note = noted("interval", interval_step=2)
    env.reset(seed=1)
    steps(env, 1)
    env.reset(options={"reset_ids": [0]})  # env 0 is a step late, in its second episode
    steps(env, 3)
    three, other = noted("interval", num_envs=3, interval_step=2)
    three.reset(seed=1)
    three.reset(options={"reset_ids": [0]})
    steps(three, 3)
    assert [ids for ids, _ in note.calls] == [[1], [0], [1]]
    assert [ids for ids, _ in other.calls] == [[0, 1, 2]]
    assert note.calls[1][1][0] == other.calls[0][1][0]
    assert note.calls[0][1][0] == other.calls[0][1][1]


def times_of(note: Note, env: EmbodiedEnv, count: int) -> dict[int, list[int]]:
    """Return by environment the steps, from 1, at which the event is called in the next ones."""
    times: dict[int, list[int]] = {i: [] for i in range(env.num_envs)}
    for step in range(1, count + 1):
        note.calls.clear()
        steps(env, 1)
        for i in (i for ids, _ in note.calls for i in ids):
            times[i].append(step)
    return times


def test_interval_of_a_range_is_drawn_after_each_call() -> None:
    env, note = noted("interval", num_envs=4, max_episode_steps=None, interval_step=[3, 5])
    env.reset(seed=1)
    times = times_of(note, env, 200)
    gaps = {i: torch.tensor([0, *at]).diff().tolist() for i, at in times.items()}  # the first from the episode's start
    assert len(set(map(tuple, gaps.values()))) == 4
    assert all(set(gap) == {3, 4, 5} for gap in gaps.values())
    drawn = torch.tensor([gap for each in gaps.values() for gap in each])
    assert (drawn.bincount()[3:] / len(drawn) - 1 / 3).abs().max() < 0.1  # each of three as often; of 200, 3 std


def test_interval_of_a_range_depends_on_env_and_episode() -> None:
    env, note = noted("interval", num_envs=2, max_episode_steps=None, interval_step=[2, 9])
    few, few_note = noted("interval", num_envs=1, max_episode_steps=None, interval_step=[2, 9])
    env.reset(seed=1)
    few.reset(seed=1)
    first = times_of(note, env, 30)
    assert times_of(few_note, few, 30)[0] == first[0]
    for each in (env, few):
        each.reset(options={"reset_ids": [0]})
    second = times_of(note, env, 30)[0]
    assert times_of(few_note, few, 30)[0] == second
    assert second != first[0]
    env.reset(seed=1)
    assert times_of(note, env, 30) == first


def test_global_interval_event_draws_each_time() -> None:
    env, note = noted("interval", interval_step=3, is_global=True)
    env.reset(seed=1)
    happened = []
    for _ in range(9):
        before = len(note.calls)
        steps(env, 1)
        happened.append(len(note.calls) - before)
    assert happened == [0, 0, 1, 0, 0, 1, 0, 0, 1]
    assert all(ids == [0, 1] for ids, _ in note.calls)
    assert len({draw for _, values in note.calls for draw in values}) == 6


def cart_at(env: EmbodiedEnv, obs: Any, action: Any, info: Any) -> Tensor:
    return env.robot.get_qpos(name="arm")[:, 0]


class Calls(Functor):
    """Counts its calls; an observation."""

    def __init__(self, cfg: Any, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        self.count = torch.zeros(env.num_envs, 1)

    def reset(self, env_ids: Tensor) -> None:
        self.count[env_ids] = 0.0

    def __call__(self, env: EmbodiedEnv) -> Tensor:
        self.count = self.count + 1.0
        return self.count


def jump(env: EmbodiedEnv, env_ids: Tensor) -> None:
    env.robot.set_qpos(torch.full((len(env_ids), 1), 3.0), name="arm", env_ids=env_ids, target=False)


@pytest.mark.parametrize("is_global", [False, True])
def test_interval_event_follows_the_reward_and_is_observed(is_global: bool) -> None:
    """The action before a push is not rewarded for it; the next one is chosen with it in sight."""
    terms = {
        "events": {"jump": {"func": jump, "mode": "interval", "interval_step": 2, "is_global": is_global}},
        "rewards": {"at": {"func": cart_at}},
        "observations": {"calls": {"func": Calls, "name": "calls"}},
    }
    env = EmbodiedEnv(cart_cfg(2, terms, max_episode_steps=4))
    env.reset(seed=1)
    for step in range(1, 5):
        obs, reward, _, truncated, info = env.step(torch.zeros(2, 1))
        before = [-0.2, -0.2] if step <= 2 else [3.0, 3.0]
        assert reward.tolist() == info["rewards"]["at"].tolist() == pytest.approx(before, abs=0.1)
        last = info["final_obs"]
        assert last["calls"].tolist() == [[step + 1], [step + 1]]  # one in a step, though it is observed again
        assert (last["robot", "qpos"][:, 0] == 3.0).all() == (step % 2 == 0)
    assert truncated.all()
    assert obs["calls"].tolist() == [[1.0], [1.0]]


def test_interval_event_in_a_chunk_follows_its_steps_reward() -> None:
    terms = {
        "events": {"jump": {"func": jump, "mode": "interval", "interval_step": 2}},
        "rewards": {"at": {"func": cart_at}},
    }
    env = EmbodiedEnv(cart_cfg(2, terms))
    env.reset(seed=1)
    obs, reward, *_ = env.step_chunk(torch.zeros(2, 4, 1))
    assert reward[0].tolist() == pytest.approx([-0.2, -0.2, 3.0, 3.0], abs=0.1)
    assert (obs["robot", "qpos"][:, 0] == 3.0).all()


def test_recording_event_lets_nothing_be_observed_again() -> None:
    class Watch(Note):
        only_reads = True

    seen = []
    env = EmbodiedEnv(cart_cfg(2, {"events": {"watch": {"func": Watch, "mode": "interval", "interval_step": 1}}}))
    env.reset(seed=1)
    env.get_obs = lambda: seen.append(1) or EmbodiedEnv.get_obs(env)  # type: ignore[method-assign,func-returns-value]
    env.step(torch.zeros(2, 1))
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (
            {"func": Note, "mode": "interval", "interval_step": [5, 3]},
            r"note\.interval_step: .*must be \[lowest, highest\], with the lowest not above the highest, got \[5, 3\]",
        ),
        (
            {"func": Note, "mode": "interval", "interval_step": [3, 5], "is_global": True},
            r"note\.interval_step: must be one number, since 'Note' is called for all .* together, got \[3, 5\]",
        ),
        (
            {"func": "record_camera_data", "mode": "interval", "interval_step": [3, 5]},
            r"note\.interval_step: must be one number, since 'record_camera_data' is called",
        ),
    ],
)  # fmt: skip
def test_impossible_interval_is_refused(event: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        cart_cfg(2, {"events": {"note": event}})


def note_of(env: EmbodiedEnv) -> Note:
    note = env.event_manager.functors[0]
    assert isinstance(note, Note)
    return note


def run_added(env: EmbodiedEnv) -> Note:
    """Reset, 2 steps, reset environment 1, 3 steps of episodes of 4."""
    note = note_of(env)
    note.calls.clear()
    note.resets.clear()
    env.reset(seed=1)
    steps(env, 2)
    env.reset(options={"reset_ids": [1]})
    steps(env, 3)
    return note


@pytest.mark.parametrize(("mode", "interval"), [("reset", 1), ("interval", 3), ("interval", (2, 4))])
def test_added_event_does_and_draws_what_it_would_in_the_config(mode: str, interval: Any) -> None:
    event: dict[str, Any] = {"mode": mode, "interval_step": interval}
    configured = EmbodiedEnv(cart_cfg(2, {"events": {"note": {"func": Note} | event}}, max_episode_steps=4))
    added = EmbodiedEnv(cart_cfg(2, max_episode_steps=4))
    added.reset(seed=7)
    added.add_events({"note": EventCfg(func=Note, **event)})
    one, other = run_added(configured), run_added(added)
    assert one.calls == other.calls != []
    assert one.resets == other.resets == [[0, 1], [1], [0]]


def test_added_startup_event_happens_at_once_and_once() -> None:
    env = EmbodiedEnv(cart_cfg(3))
    env.add_events({"note": EventCfg(func=Note, mode="startup")})
    env.reset()
    steps(env, 2)
    assert [ids for ids, _ in note_of(env).calls] == [[0, 1, 2]]


def test_episodes_begin_after_events_were_added() -> None:
    env = EmbodiedEnv(cart_cfg(2))
    env.reset()
    env.add_events({"note": EventCfg(func=Note)})
    with pytest.raises(RuntimeError, match=r"call reset\(\) before step"):
        steps(env, 1)


def test_added_recorder_is_started_with_the_others(tmp_path: Path) -> None:
    env = EmbodiedEnv(cart_cfg(1))
    params = {"name": "cam", "resolution": (32, 24), "max_frames": 2}
    camera = EventCfg(func="record_camera_data", mode="interval", interval_step=1, params=params)
    env.add_events({"camera": camera})
    env.reset()
    env.start_recording(tmp_path, "x")
    (recorder,) = recorders_in(env.event_manager.functors)
    assert recorder.recording.video is not None
    assert recorder.recording.video.path == tmp_path / "cam_x.mp4"
    env.close()


def far(env: EmbodiedEnv, env_ids: Tensor, thing: SceneEntityCfg, way: float) -> None:
    env.sim.get_rigid_object(thing.uid)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (EventCfg(func=far, params={"thing": {"uid": "bxo"}, "way": 1.0}), r"^events\.new\.params\.thing\.uid: no"),
        (EventCfg(func=far, params={"thing": SceneEntityCfg(uid="bxo"), "way": 1.0}), r"Did you mean 'box'\?"),
        (EventCfg(func=far, params={"thing": {"uid": "box"}}), r"^events\.new\.params\.way: required, but missing$"),
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


def push_all(env: EmbodiedEnv, env_ids: Tensor) -> None:
    """Forgets to pass ``env_ids`` on."""
    env.robot.set_qvel(torch.ones(env.num_envs, 1))


def push(env: EmbodiedEnv, env_ids: Tensor) -> None:
    env.robot.set_qvel(torch.ones(len(env_ids), 1), env_ids=env_ids)


def lose(env: EmbodiedEnv, env_ids: Tensor) -> None:
    env.robot.set_qvel(torch.full((len(env_ids), 1), torch.nan), env_ids=env_ids)


def push_together(env: EmbodiedEnv, env_ids: Tensor) -> None:
    push_all(env, env_ids)


push_together.is_global = True  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", [{"mode": "reset"}, {"mode": "interval", "interval_step": (2, 9)}])
@pytest.mark.parametrize(("func", "is_wrong"), [(push_all, True), (push, False), (lose, False)])
def test_event_that_moves_other_environments_is_an_error(func: Any, is_wrong: bool, mode: dict[str, Any]) -> None:
    env = EmbodiedEnv(cart_cfg(5, {"events": {"push": {"func": func, **mode}}}))
    env.reset(seed=1)
    wrong = pytest.raises(ConfigError, match=r"^env\.events\.push: moves environments outside env_ids")
    with wrong if is_wrong else nullcontext():
        steps(env, 8)
        env.reset(options={"reset_ids": torch.tensor([1])})


def carry_all(env: EmbodiedEnv, env_ids: Tensor) -> None:
    """Forgets to pass ``env_ids`` on, to a body that MuJoCo moves by its mocap pose."""
    box = env.sim.get_rigid_object("box")
    box.set_local_pose(box.get_local_pose() + 0.1)


def test_event_that_moves_other_kinematic_bodies_is_an_error() -> None:
    box = {**BOX, "body_type": "kinematic"}
    env = EmbodiedEnv(cart_cfg(3, {"events": {"carry": {"func": carry_all, "mode": "reset"}}}, rigid_object=[box]))
    env.reset(seed=1)
    with pytest.raises(ConfigError, match=r"^env\.events\.carry: moves environments outside env_ids"):
        env.reset(options={"reset_ids": torch.tensor([1])})


def test_trial_calls_global_events_for_all_environments() -> None:
    events = {"push": {"func": push_together, "mode": "interval", "interval_step": 50}}
    env = EmbodiedEnv(cart_cfg(3, {"events": events}))
    env.reset(seed=1)
    env.event_manager.rehearse(torch.tensor([1]))
    assert env.robot.get_qvel()[:, 0].tolist() == [1.0] * 3
