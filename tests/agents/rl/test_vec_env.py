import pytest
from gymnasium import spaces

from embodichain.agents.rl.vec_env import mirror_map_of
from embodichain.utils import ConfigError
from embodichain.utils.observations import Mirror, MirrorMap
from tests.agents.rl.fakes import ScriptedEnv

ONE, TWO = Mirror.of([0], [-1], "test"), Mirror.of([1, 0], [1, 1], "test")


class MirroredEnv(ScriptedEnv):
    """Has observations of two numbers and actions of one."""

    def __init__(self, obs: Mirror, action: Mirror) -> None:
        super().__init__(2)
        self.images = MirrorMap(obs, action)

    def mirror_map(self) -> MirrorMap:
        return self.images


def test_environment_without_a_mirror_map_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^algorithm\.cfg\.symmetry: the environment ScriptedEnv declares no"):
        mirror_map_of(ScriptedEnv(2))


@pytest.mark.parametrize(
    ("obs", "action", "message"),
    [
        (ONE, ONE, "observations of 1 .*they have 2"),
        (TWO, TWO, "actions of 2 .*they have 1"),
    ],
)
def test_mirror_map_of_wrong_length_is_refused_in_one_line(obs: Mirror, action: Mirror, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^algorithm\.cfg\.symmetry: the mirror map of Mi.* for {message}$"):
        mirror_map_of(MirroredEnv(obs, action))


def test_mirror_map_that_leaves_the_limits_of_actions_is_refused() -> None:
    env = MirroredEnv(TWO, ONE)
    env.action_space = spaces.Box(-1, 2, (2, 1))
    with pytest.raises(ConfigError, match=r"MirroredEnv: the actions' limits are not mirror images of each other$"):
        mirror_map_of(env)
