"""What a policy sees and does in an environment, as text."""

from __future__ import annotations

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.tools.view.actions import action_numbers
from embodichain.utils.observations import entry_columns, entry_spaces


def format_spaces(env_id: str, env: EmbodiedEnv) -> str:
    """Return the lists of the entries of the observation and of the numbers of the action."""
    columns = entry_columns(env.single_observation_space)
    lines = [f"{env_id}: a step is {env.step_dt:g} s", "", "observation"]
    for name, space in entry_spaces(env.single_observation_space).items():
        part = columns.get(name)
        place = "image, beside the flat observation" if part is None else f"columns {part.start} to {part.stop - 1}"
        lines.append(f"  {name:28} {list(space.shape)!s:14} {place}")
    lines += ["", "action"]
    for i, number in enumerate(action_numbers(env)):
        low, high = number.commands
        what = f"{number.moves}: {number.meaning}: {low:.4g} to {high:.4g}" if number.moves else ""
        lines.append(f"  {i:3}  {number.term:20} [{number.low:g}, {number.high:g}]  {what}".rstrip())
    return "\n".join(lines)
