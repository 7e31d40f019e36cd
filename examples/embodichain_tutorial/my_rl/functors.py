from embodichain.lab.gym.envs.managers import Functor
from embodichain.lab.gym.envs.managers.actions import ActionTerm
from embodichain.lab.gym.envs.managers.cfg import SceneEntityCfg


def tool_pose(env, obs, entity_cfg: SceneEntityCfg = None):
    """An observation: here it may as well be `tool_pose(env, entity_cfg)`."""
    return env.sim.get_robot(entity_cfg.uid).get_eef_pose()


def height_penalty(env, obs, action, info, target: float = 0.0):
    """A reward."""
    return -(info["metrics"]["height"] - target).abs()


def shake(env, env_ids, entity_cfg: SceneEntityCfg, size: float = 0.1):
    """An event."""
    robot = env.sim.get_robot(entity_cfg.uid)
    noise = env.random.uniform(env_ids, -size, size, robot.dof)
    robot.set_qpos(robot.get_qpos()[env_ids] + noise, env_ids=env_ids)


class OneStepLate(Functor):
    """An observation with state: what was there a step ago."""

    def __init__(self, cfg, env):
        super().__init__(cfg, env)
        self._before = None

    def __call__(self, env, data):
        before = data if self._before is None else self._before
        self._before = data
        return before

    def reset(self, env_ids=None):
        if self._before is not None:
            self._before = self._before.clone()
            self._before[env_ids] = 0.0


class HalfDelta(ActionTerm):
    """An action."""

    def __init__(self, cfg, env):
        super().__init__(cfg, env)
        self._scale = cfg.params.get("scale", 1.0)

    @property
    def input_key(self):
        return "qpos"

    @property
    def action_dim(self):
        return len(self._env.active_joint_ids)

    def process_action(self, action):
        return self._env.robot.get_qpos() + 0.5 * self._scale * action
