import pytest

from embodichain.utils import ConfigError, collected, nearest, placed, raise_problems, unknown_key, unknown_name


def test_nearest_name_is_empty_when_all_are_far() -> None:
    assert nearest("gama", ["gamma", "lambda"]) == " Did you mean 'gamma'?"
    assert nearest("zzz", ["gamma", "lambda"]) == ""
    assert nearest("gamma", []) == ""


def test_unknown_name_lists_known_ones_sorted() -> None:
    message = unknown_name("policy", "actor_critc", ["mlp", "actor_critic"])
    assert message == "unknown policy 'actor_critc'. Did you mean 'actor_critic'? Known: actor_critic, mlp"
    assert unknown_name("policy", "x", []) == "unknown policy 'x'. Known: none"


def test_unknown_key_lists_the_known_if_few() -> None:
    assert unknown_key("sed", ["seed", "device"]) == "unknown key. Did you mean 'seed'? Known: seed, device"
    many = [f"key_{i}" for i in range(9)]
    assert unknown_key("keey_1", many) == "unknown key. Did you mean 'key_1'?"
    assert unknown_key("other", many).endswith("Known: " + ", ".join(many))
    assert unknown_key("x", [], noun="parameter") == "unknown parameter. Known: none"


def test_collected_problems_are_raised_together_once_each() -> None:
    problems: list[str] = []
    for line in ("b", "c", "b"):
        with collected(problems, "a."):
            raise ConfigError(line)
    assert problems == ["a.b", "a.c", "a.b"]
    with pytest.raises(ConfigError) as caught, placed("env: "):
        raise_problems(problems)
    assert str(caught.value) == "env: a.b\nenv: a.c"
    raise_problems([])
