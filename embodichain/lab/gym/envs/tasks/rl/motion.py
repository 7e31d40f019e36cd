"""Follow a reference motion. Shapes: N environments."""

from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.motion.commands import TrackingError, motion_of
from embodichain.lab.gym.envs.tasks.rl.basic import default_cfg
from embodichain.lab.gym.registry import register_env


class MotionEnv(EmbodiedEnv):
    """The robot is to follow the command ``motion`` to its clip's end; its observations are all terms.

    The clip's end is success, and ends the episode; the terminations end episodes too far from the reference.
    """

    base_entries = ()

    @override
    def compute_task_state(self, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return success, failure (never: see the terminations), and the metrics of the present step.

        ``joint_error`` (mean over the joints, rad), ``body_error`` (mean over the aligned bodies, m), ``anchor_error``
        (world frame, m), and ``tracked``, the share done of what there was to follow from the start on.
        """
        motion = motion_of(self)
        of: dict[str, TrackingError] = {"joint": "joint_pos", "body": "body_pos", "anchor": "anchor_pos"}
        metrics = {
            **{f"{name}_error": torch.linalg.vector_norm(motion.error(of[name]), dim=2).mean(dim=1) for name in of},
            "tracked": (motion.frame - motion.first) / (motion.clips.last[motion.first] - motion.first),
        }
        return motion.clips.is_last[motion.frame], self._never, metrics


@register_env("G1MotionRL", max_episode_steps=1000, override=True, default_cfg=default_cfg("g1_motion"))
class G1MotionEnv(MotionEnv):
    """A humanoid that follows a squat, a wave, and a jump with a half turn."""
