import torch

from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.utils.registration import register_env


@register_env("MyTaskRL", max_episode_steps=50, override=True)
class MyTaskEnv(EmbodiedEnv):
    def __init__(self, cfg: EmbodiedEnvCfg = None, **kwargs):
        super().__init__(cfg, **kwargs)

    def compute_task_state(self, **kwargs):
        """The tool is to come down to a height."""
        height = self.robot.get_eef_pose()[:, 2, 3]
        is_success = height < self.success_threshold
        is_fail = torch.zeros_like(is_success)
        return is_success, is_fail, {"height": height}
