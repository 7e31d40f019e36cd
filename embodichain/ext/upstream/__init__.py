"""Other layouts of configs, converted to ours before the parse; see the README of this folder."""

from embodichain.ext.upstream.environment import modernise_env as convert_environment
from embodichain.ext.upstream.environment import refuse_other_products
from embodichain.ext.upstream.inline_env import read_inline_env
from embodichain.ext.upstream.training import modernise as convert_training

__all__ = ["convert_environment", "convert_training", "read_inline_env", "refuse_other_products"]
