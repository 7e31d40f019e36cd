"""Any Gymnasium or EnvPool environment as a task, and ours as Gymnasium's and Stable-Baselines3's; see the README."""

from embodichain.utils import face

__getattr__ = face(
    __name__,
    {
        "EnvPoolCfg": "embodichain.ext.gymnasium.envpool_env",
        "EnvPoolEnv": "embodichain.ext.gymnasium.envpool_env",
        "GymnasiumEnv": "embodichain.ext.gymnasium.gymnasium_env",
        "GymnasiumEnvCfg": "embodichain.ext.gymnasium.gymnasium_env",
        "GymnasiumVectorEnv": "embodichain.ext.gymnasium.vector_env",
        "SB3VecEnv": "embodichain.ext.gymnasium.sb3",
    },
)
