"""Play the policies of some runs side by side into an animated GIF, such as the one at the top of the README.

    python scripts/gallery.py outputs/push_cube_quickstart_* outputs/go2_flat_quickstart_* --out docs/media/gallery.gif

Each run is a panel in real time, with its task and the success rate of its last evaluation below. The episodes follow
from ``--seed``; none is left out. The last image of an episode stays for 0.4 s.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import imageio_ffmpeg
import numpy as np

from embodichain.agents.rl.build import open_run
from embodichain.agents.rl.checkpoint.saved_run import find_run
from embodichain.commands.view import config_camera
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.record import View
from embodichain.tools.policy import TrainedPolicy
from embodichain.utils.utility import load_json
from embodichain.utils.video import draw_caption

_FRAME = 0.08  # s: GIFs count in hundredths, and the tasks' control steps are parts of it
_PAUSE = 5  # frames
_COLOURS = 96
_GAP = 4  # pixels between the panels
_WHITE = 255


def film(target: str, seconds: float, size: tuple[int, int], seed: int) -> np.ndarray:
    """Return what a run's policy does, frames [F, H, W, 3] uint8, F = ``seconds`` / 0.08 s.

    Args:
        target: a run's folder or checkpoint.
        size: W and H, both even.
        seed: seed of the episodes.
    """
    saved = find_run(target)
    caption = _caption(saved.folder)
    frames: list[np.ndarray] = []
    ended = succeeded = 0
    with open_run(saved, 1) as opened:
        env, space = opened.env, opened.env.single_observation_space
        policy = TrainedPolicy(opened.policy, opened.device, space, env.single_action_space)
        if not isinstance(env, EmbodiedEnv):
            raise SystemExit(f"{target}: a Gymnasium environment: only tasks on this library's physics have panels")
        with closing(View(env, size, config_camera([opened.config.eval_env, opened.config.env]))) as camera:
            obs, _ = env.reset(seed=seed)
            while len(frames) < seconds / _FRAME:
                frames.append(draw_caption(camera.render(), caption))
                for _ in range(round(_FRAME / env.step_dt)):
                    obs, _, terminated, truncated, info = env.step(policy.act(obs))
                    done = terminated | truncated
                    policy.reset(done)
                    if done.any():
                        ended, succeeded = ended + 1, succeeded + int(info["success"][0])
                        frames += _PAUSE * frames[-1:]
                        break
    print(f"{caption}: {ended} episodes ended, {succeeded} with success")
    return np.stack(frames[: round(seconds / _FRAME)])


def _caption(run: Path) -> str:
    task = str(load_json(run / "config.json")["gym_config"]["id"]).removesuffix("RL")
    summary = load_json(run / "summary.json")
    if (rate := summary["success_rate"]) is None:
        return f"{task}: return {summary['avg_reward']:.4g}"
    return f"{task}: {rate:.0%} of {summary['episodes']} episodes"


def side_by_side(panels: Sequence[np.ndarray], columns: int) -> np.ndarray:
    """Return the panels [F, H, W, 3] in rows of ``columns``, with white gaps."""
    num_frames, height, width, _ = panels[0].shape
    rows = -(-len(panels) // columns)
    sheet = (num_frames, rows * (height + _GAP) - _GAP, columns * (width + _GAP) - _GAP, 3)
    image = np.full(sheet, _WHITE, np.uint8)
    for i, panel in enumerate(panels):
        top, left = i // columns * (height + _GAP), i % columns * (width + _GAP)
        image[:, top : top + height, left : left + width] = panel
    return image


def write_gif(frames: np.ndarray, path: Path) -> None:
    """Write frames [F, H, W, 3] as a GIF that repeats."""
    height, width = frames.shape[1:3]
    images = ("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{1 / _FRAME}", "-i", "-")
    # No dithering: its noise would change still parts from frame to frame, which makes the file larger.
    palette = f"split[a][b];[a]palettegen=max_colors={_COLOURS}[p];[b][p]paletteuse=dither=none"
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-v", "error", *images, "-filter_complex", palette, str(path)]
    subprocess.run(command, input=frames.tobytes(), check=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Write the GIF."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders of runs, or checkpoints")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--seconds", type=float, default=6.0, help="length (default: 6)")
    parser.add_argument("--size", type=int, nargs=2, default=(272, 204), metavar=("W", "H"), help="of a panel, pixels")
    parser.add_argument("--columns", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    panels = [film(run, args.seconds, tuple(args.size), args.seed) for run in args.runs]
    frames = side_by_side(panels, min(args.columns, len(panels)))
    write_gif(frames, args.out)
    print(f"{args.out}: {frames.shape[2]}x{frames.shape[1]}, {args.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
