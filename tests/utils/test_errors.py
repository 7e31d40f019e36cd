from __future__ import annotations

from embodichain.utils.errors import ConfigError, nearest, unknown_name


def test_nearest_offers_the_closest_known_name_and_nothing_when_all_are_far() -> None:
    assert nearest("gama", ["gamma", "lambda"]) == " Did you mean 'gamma'?"
    assert nearest("zzz", ["gamma", "lambda"]) == ""
    assert nearest("gamma", []) == ""


def test_message_of_an_unknown_name_has_the_nearest_and_all_known_ones_sorted() -> None:
    message = unknown_name("policy", "actor_critc", ["mlp", "actor_critic"])
    assert message == "unknown policy 'actor_critc'. Did you mean 'actor_critic'? Known: actor_critic, mlp"
    assert unknown_name("policy", "x", []) == "unknown policy 'x'. Known: none"


def test_config_error_is_a_value_error() -> None:
    assert issubclass(ConfigError, ValueError)
