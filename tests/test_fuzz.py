"""Shipped configs, mutated at random: each is either accepted or refused in words, and never takes long.

Some dozens of each kind here, the same ones each time; thousands, and new ones each time, by the environment variable:
FUZZ_EXAMPLES=5000 pytest tests/test_fuzz.py
"""

import copy
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from embodichain.agents.rl.run_config import load_run_config
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json
from tests.shipped import TRAIN_CONFIGS, env_config_of

PAIRS = [(train, env_config_of(train)) for train in map(load_json, TRAIN_CONFIGS)]
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))
SECONDS = 20  # of one config; one takes milliseconds
fuzz = settings(
    max_examples=EXAMPLES or 80,
    derandomize=not EXAMPLES,
    deadline=None,  # an alarm stops what hangs
    database=None,
    phases=[Phase.generate],  # a config that fails is printed as it is: to make it smaller takes minutes
    suppress_health_check=list(HealthCheck),
)

TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["", "a" * 100_000, "\0", "../../x", "/etc/passwd", "cpu", "PushCubeRL", "os.system", "record_camera_data"]
    ),
    st.sampled_from(["1e400", "\ud800", "٣", "𝔘", "NaN", "-1 it", "999999999999999999999 it", "__class__", "$schema"]),
)
NUMBERS = st.one_of(
    st.integers(-3, 70),
    st.sampled_from([2**31, 2**63, 2**64, 10**400, -(2**63), 1e308, -0.0, 1e-320, 0.5]),
    st.sampled_from([float("nan"), float("inf"), -float("inf")]),
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    TEXTS,
    st.builds(list),
    st.builds(dict),
    st.lists(NUMBERS, max_size=8),
    st.builds(lambda value: [value] * 20_000, st.one_of(NUMBERS, st.just("a"), st.just({}))),
    st.dictionaries(TEXTS, st.one_of(NUMBERS, TEXTS), max_size=3),
    st.builds(lambda depth, value: nest(depth, value), st.sampled_from([3, 50, 900, 5000]), NUMBERS),
)


def nest(depth: int, value: Any) -> Any:
    """Put a value into lists and objects in turn."""
    for i in range(depth):
        value = [value] if i % 2 else {"a": value}
    return value


def places(value: Any, depth: int = 30) -> Iterator[tuple[Any, Any]]:
    """Yield container and key of everything inside a value, down to a depth."""
    if not depth:
        return
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(inside):
        yield value, key
        yield from places(inner, depth - 1)


def mutate(draw: Callable[..., Any], root: dict[str, Any]) -> None:
    """Change one thing in a config."""
    spots = list(places(root))
    if not spots:
        return
    container, key = spots[draw(st.integers(0, len(spots) - 1))]
    match draw(st.sampled_from(["replace", "delete", "add", "wrap", "swap", "rename", "repeat"])):
        case "replace":
            container[key] = draw(VALUES)
        case "delete":
            del container[key]
        case "add" if isinstance(container, dict):
            container[draw(TEXTS)] = draw(VALUES)
        case "add":
            container.append(draw(VALUES))
        case "wrap":
            container[key] = [container[key]] if draw(st.booleans()) else {"a": container[key]}
        case "swap":
            other, place = spots[draw(st.integers(0, len(spots) - 1))]
            container[key], other[place] = copy.deepcopy(other[place]), copy.deepcopy(container[key])
        case "rename" if isinstance(container, dict):
            container[draw(TEXTS)] = container.pop(key)
        case _:
            container[key] = [copy.deepcopy(container[key]) for _ in range(3)]


@contextmanager
def no_hang() -> Iterator[None]:
    """Fail where something takes too long."""

    def fail(*args: object) -> None:
        raise TimeoutError(f"nothing within {SECONDS} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check(path: Path) -> None:
    """Read a config; anything but a ConfigError, which it may raise, is a fault of ours."""
    with no_hang(), suppress(ConfigError):
        load_run_config(path)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.e2e
@fuzz
@given(data=st.data())
def test_mutated_configs_are_accepted_or_refused_in_words(data: st.DataObject) -> None:
    train, env = copy.deepcopy(data.draw(st.sampled_from(PAIRS)))
    for _ in range(data.draw(st.integers(1, 4))):
        with suppress(RecursionError):  # what is deeper than Python can copy stays where it is
            mutate(data.draw, data.draw(st.sampled_from([train, env])))
    if isinstance(train.get("trainer"), dict) and isinstance(train["trainer"].get("gym_config"), str):
        train["trainer"]["gym_config"] = data.draw(st.sampled_from(["env.json", env]))
    try:
        texts = {"env.json": json.dumps(env), "train.json": json.dumps(train)}
    except RecursionError:
        return  # deeper than Python writes; texts of that depth are below
    for name, text in texts.items():
        Path(name).write_text(text, encoding="utf-8", errors="surrogatepass")
    check(Path("train.json"))


@pytest.mark.e2e
@fuzz
@given(data=st.data())
def test_damaged_texts_are_accepted_or_refused_in_words(data: st.DataObject) -> None:
    train, env = data.draw(st.sampled_from(PAIRS))
    text = json.dumps(
        train | {"trainer": train["trainer"] | {"gym_config": env}}, indent=data.draw(st.sampled_from([None, 1]))
    )
    for _ in range(data.draw(st.integers(1, 3))):
        at, length = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 30))
        extra = data.draw(
            st.one_of(
                st.text(max_size=5),
                st.sampled_from(
                    ["{", "}", "[", "]", ",", ":", '"', "&a ", "*a", "<<: *a", "!!python/object:os.system ", "- ", "\t"]
                ),
                st.sampled_from(
                    ["[" * 3000, '{"a":' * 3000, "\\ud800", "1" * 5000, "1e99999", "\ufeff", "? ", "--- ", "0x1f"]
                ),
            )
        )
        text = text[:at] + extra + text[at + length :]
    path = Path(data.draw(st.sampled_from(["train.json", "train.json", "train.yaml"])))
    path.write_bytes(text.encode("utf-8", errors="surrogatepass"))
    check(path)


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))

MERGE_BOMB = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 30)
)


@pytest.mark.e2e
@pytest.mark.parametrize(
    "text",
    [
        MERGE_BOMB,
        BOMB,
        f"trainer:\n  gym_config: *b\n{BOMB}",
        BOMB + "trainer: {gym_config: *a29}\npolicy: *a29\nalgorithm: *a29\n",
        "trainer: &t\n  gym_config: *t\n",  # inside itself
        "trainer: &t {gym_config: &g {id: PushCubeRL, env: *g}}\npolicy: *t\n",
        "[" * 20_000,
        "{a: " * 20_000,
        "trainer: " + "- " * 5_000,
        "!!python/object/apply:os.system ['true']",
        "trainer: !!timestamp 2001-01-01",
        "? [a, b]\n: c",
        "trainer: {num_envs: !!int '9'}\n",
        "\0",
        "%YAML 9.9\n---\n{}",
    ],
    ids=range(15),
)
def test_hostile_yaml_is_refused_in_words(text: str) -> None:
    Path("train.yaml").write_text(text, encoding="utf-8")
    with no_hang(), pytest.raises(ConfigError):
        load_run_config("train.yaml")


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "1" * 100_000, '{"trainer": ' + "9" * 5000 + "}", "\0", ""]
)
def test_hostile_json_is_refused_in_words(text: str) -> None:
    Path("train.json").write_text(text, encoding="utf-8")
    with no_hang(), pytest.raises(ConfigError):
        load_run_config("train.json")
