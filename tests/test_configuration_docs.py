"""docs/configuration.md says what the code does; the catalogue of terms is complete, and as committed."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from embodichain.agents.rl.run_config import load_run_config
from embodichain.lab.gym.config.env_config import ENV_KEYS, TOP_KEYS, config_to_cfg
from embodichain.lab.gym.envs.managers.cfg import DEFAULT_MANAGER_MODULES
from embodichain.utils import ConfigError
from embodichain.utils.module_utils import public_names
from embodichain.utils.utility import load_json
from scripts.config_docs import DOCUMENT, render
from scripts.make_terms import PAGE, page, term_text

TEXT = DOCUMENT.read_text(encoding="utf-8")
PUSH_CUBE = DOCUMENT.parent.parent / "configs/agents/rl/push_cube"


@pytest.mark.ext
def test_keys_are_those_of_the_config_classes() -> None:
    assert render(TEXT) == TEXT, "run: python scripts/config_docs.py"


def test_every_key_is_there() -> None:
    for key in (*TOP_KEYS, *ENV_KEYS):
        assert f"\n- `{key}` (" in TEXT


@pytest.mark.ext
def test_environment_inside_the_training_config_is_read_as_the_example_says() -> None:
    from embodichain.ext.upstream.training import convert_training  # noqa: PLC0415 (an extension)

    example = re.search(r'```json\n("env": {.*?)```', TEXT, re.DOTALL)
    assert example is not None
    cfg = config_to_cfg(convert_training(json.loads(f"{{{example[1]}}}"))["trainer"]["gym_config"])
    assert (cfg.num_envs, list(cfg.rewards), cfg.extensions) == (16, ["success"], {"success_threshold": 0.1})


def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], dict[str, Any]]:
    """Go to a folder for the copies of PushCube's configs that are returned."""
    monkeypatch.chdir(folder)
    train, env = load_json(PUSH_CUBE / "train_config.json"), load_json(PUSH_CUBE / "gym_config.json")
    train["trainer"]["gym_config"] = "gym_config.json"
    return train, env


def test_mistakes_are_reported_as_the_example_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, env = in_folder(tmp_path, monkeypatch)
    train["trainer"]["num_evns"] = 2
    train["algorithm"]["cfg"] |= {"gamma": 1.5, "batch_size": 100000}
    env["env"]["rewards"]["reach"]["params"]["object_cfg"]["uid"] = "cub"
    Path("train.json").write_text(json.dumps(train), encoding="utf-8")
    Path("gym_config.json").write_text(json.dumps(env), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_run_config("train.json")
    (example,) = re.findall(r"^    error: (.*?)\n\n", TEXT, re.DOTALL | re.MULTILINE)
    assert sorted(str(caught.value).splitlines()) == sorted(line.strip() for line in example.splitlines())


def test_overrides_of_the_example_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DOCUMENT.parent.parent)
    (line,) = re.findall(r"^    (trainer\.num_envs=.*)$", TEXT, re.MULTILINE)
    run = load_run_config(PUSH_CUBE / "train_config.json", shlex.split(line))
    assert (run.env.num_envs, run.trainer.eval_freq) == (256, "5 it")
    assert run.resolved["policy"]["actor"]["network_cfg"]["hidden_sizes"] == [64, 64]


def test_committed_catalogue_is_what_the_script_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python scripts/make_terms.py"


def test_every_term_that_configs_may_name_is_there() -> None:
    found = re.findall(r"^### `(\w+)`$", page(), flags=re.MULTILINE)
    assert set(public_names(DEFAULT_MANAGER_MODULES)) <= set(found)


def test_every_parameter_is_explained() -> None:
    rows = [line for line in page().splitlines() if line.startswith("- `")]
    assert len(rows) > 100
    assert [row for row in rows if row.endswith("): ")] == []


def term(cup: str, heights: tuple[int, int] = (1, 2), speed: float | None = None) -> None:
    """Return :func:`nothing` of ``cup``.

    Args:
        cup: which one,
            or another.
        heights: m.
        speed: m/s, or | none.

    Returns:
        [N].
    """


def test_text_of_a_term_is_its_docstring_with_its_parameters() -> None:
    assert term_text("term", term) == (
        "### `term`\n\nReturn `nothing` of `cup`.\n\nReturns [N].\n\n"
        "- `cup` (str, required): which one, or another.\n"
        "- `heights` (tuple[int, int], `[1, 2]`): m.\n"
        "- `speed` (float | null, `null`): m/s, or | none.\n"
    )
