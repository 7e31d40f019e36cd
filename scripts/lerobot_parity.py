"""Compares our SmolVLA with LeRobot's, from folders on the disk, and writes the small folder that the tests read.

Runs where LeRobot is installed (Python 3.12, `pip install 'lerobot[smolvla]==0.6.1'` into this package's environment):

    python scripts/lerobot_parity.py                                # theirs -> ours -> theirs, 100 observations
    python scripts/lerobot_parity.py --fixture tests/ext/vla/lerobot/fixture

A policy with small networks and random weights is written by LeRobot, read by us, changed as a training changes it,
written by us and read by LeRobot. Both times actions and losses of both are compared.

Shapes: B observations, F predicted actions, A and W sizes of the action and of the flow.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import torch
import transformers
from lerobot import __version__ as lerobot_version
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.factory import make_pre_post_processors
from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, SmolVLMConfig, SmolVLMImageProcessor, SmolVLMProcessor
from transformers.models.smolvlm.video_processing_smolvlm import SmolVLMVideoProcessor

from embodichain.ext.vla.lerobot.files import find_entries
from embodichain.ext.vla.lerobot.folder import build_lerobot_model
from embodichain.ext.vla.lerobot.writing import write_lerobot_folder
from embodichain.ext.vla.loading import read_model_path
from embodichain.lab.gym.utils.instructions import encode_instructions

TASKS = ("push the red cube", "pick the green ball", "open the drawer", "place the small box on the table")
CAMERAS = {"top": (12, 16), "wrist": (20, 10)}  # height, width, pixels
STATE, ACTION, FLOW = 9, 2, (6, 8)  # sizes of PushColoredCubeRL; F, W
LAYERS = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2}
ENTRIES = {"observation.images.wrist": "image/hand", "observation.images.empty_camera_0": None}
STATISTICS = {"MEAN_STD": ("mean", "std"), "MIN_MAX": ("min", "max"), "QUANTILES": ("q01", "q99")}
TOLERANCE = 1e-5


def make_vlm(folder: Path) -> None:
    """Write config, tokenizer and image processor of a small vision-language model."""
    special = ["<pad>", "<image>", "<fake_token_around_image>", "<global-img>", "<end>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        [f"{task}\n" for task in TASKS], trainers.BpeTrainer(vocab_size=80, special_tokens=special)
    )
    named = {"image_token": special[1], "fake_image_token": special[2], "global_image_token": special[3]}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", extra_special_tokens=named
    )
    SmolVLMProcessor(SmolVLMImageProcessor(), fast, SmolVLMVideoProcessor()).save_pretrained(folder)
    SmolVLMConfig(
        vision_config={**LAYERS, "image_size": 32, "patch_size": 8, "num_hidden_layers": 2},
        text_config={**LAYERS, "model_type": "llama", "vocab_size": len(fast), "num_key_value_heads": 1, "head_dim": 8},
        scale_factor=2,
        image_token_id=1,
        pad_token_id=0,
    ).save_pretrained(folder)


def make_theirs(folder: Path, kind: str = "MEAN_STD") -> None:
    """Write a policy with small networks, random weights and statistics, normalised in a kind of LeRobot's."""
    make_vlm(folder / "vlm")
    images = {
        f"observation.images.{name}": PolicyFeature(FeatureType.VISUAL, (3, *size)) for name, size in CAMERAS.items()
    }
    config = SmolVLAConfig(
        input_features={**images, "observation.state": PolicyFeature(FeatureType.STATE, (STATE,))},
        output_features={"action": PolicyFeature(FeatureType.ACTION, (ACTION,))},
        chunk_size=FLOW[0],
        n_action_steps=4,
        max_state_dim=12,
        max_action_dim=FLOW[1],
        resize_imgs_with_padding=(32, 32),
        empty_cameras=1,
        num_steps=5,
        vlm_model_name="vlm",
        num_vlm_layers=2,
        normalization_mapping={"VISUAL": "IDENTITY", "STATE": kind, "ACTION": kind},
        device="cpu",
        push_to_hub=False,
    )
    with chdir(folder):
        policy = SmolVLAPolicy(config)
        for value in policy.parameters():
            value.data.copy_(1 + 0.1 * torch.randn_like(value) if value.ndim == 1 else 0.25 * torch.randn_like(value))
        stats = {
            name: {low: torch.randn(size), high: torch.rand(size) + (0.5 if high == "std" else 3.0)}
            for name, size in (("observation.state", STATE), ("action", ACTION))
            for low, high in [STATISTICS[kind]]
        }
        policy.save_pretrained(".")
        for processor in make_pre_post_processors(config, dataset_stats=stats):
            processor.save_pretrained(".")


def draw(count: int) -> dict[str, Any]:
    """Return observations, demonstrated actions, noise and times at random, [B, ...]."""
    tasks = [TASKS[i % len(TASKS)] for i in range(count)]
    images = {
        f"image/{name}": torch.randint(0, 256, (count, *size, 3), dtype=torch.uint8) for name, size in CAMERAS.items()
    }
    images["image/hand"] = images.pop("image/wrist")
    shown, noise = torch.randn(count, FLOW[0], ACTION), torch.randn(count, *FLOW)
    given = {**images, "state": torch.randn(count, STATE), "instruction": encode_instructions(tasks)}
    return {"observation": given, "tasks": tasks, "action": shown, "noise": noise, "time": torch.rand(count)}


def run_theirs(folder: Path, drawn: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return LeRobot's chunks [B, F, A] and losses [B] with the policy of a folder."""
    with chdir(folder):
        policy = SmolVLAPolicy.from_pretrained(".", strict=True)
        before, after = make_pre_post_processors(policy.config, ".")
    seen = drawn["observation"]
    given = {
        "observation.images.top": seen["image/top"].permute(0, 3, 1, 2) / 255,
        "observation.images.wrist": seen["image/hand"].permute(0, 3, 1, 2) / 255,
        "observation.state": seen["state"],
        "task": drawn["tasks"],
        "action": drawn["action"],
    }
    batch = before(given)
    with torch.no_grad():
        losses, _ = policy.forward(dict(batch), drawn["noise"], drawn["time"], reduction="none")
        actions = after(policy.predict_action_chunk({k: v for k, v in batch.items() if k != "action"}, drawn["noise"]))
    return actions, losses


def run_ours(model: Any, drawn: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return our chunks [B, F, A] and losses [B]."""
    seen, noise = drawn["observation"], drawn["noise"]
    with torch.no_grad():
        losses = model.flow_loss(seen, drawn["action"], noise, drawn["time"]).mean((1, 2))
        return model.predict(seen, noise), losses


def compare(kind: str, count: int) -> float:
    """Compare both ways over observations; print and return the largest difference."""
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        theirs, ours = Path(name, "theirs"), Path(name, "ours")
        for folder in (theirs, ours):
            folder.mkdir()
        make_theirs(theirs, kind)
        for what, their, our in results(theirs, ours, draw(count)):
            difference = float((their - our).abs().max())
            worst = max(worst, difference)
            print(f"{kind:10} {what:24} differ by {difference:.2g}, of {float(their.abs().max()):.3g}, over {count}")
    return worst


def results(theirs: Path, ours: Path, drawn: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Yield a name, their and our result: of a folder of theirs, then of one that we write after a change."""
    source = read_model_path(theirs)
    entries = find_entries(source.cfg, ENTRIES)
    model, _ = build_lerobot_model(source, entries, {}, "cpu")
    for way, folder in (("theirs -> ours", theirs), ("ours -> theirs", ours)):
        if folder == ours:
            for value in model.parameters():
                value.data.add_(0.02 * torch.randn_like(value))
            shapes = {
                f"image/{name}": (*size, 3) for name, size in (("top", CAMERAS["top"]), ("hand", CAMERAS["wrist"]))
            }
            write_lerobot_folder(ours, model, source, entries, shapes)
        found = zip(run_theirs(folder, drawn), run_ours(model, drawn), ("actions", "losses"), strict=True)
        for their, our, name in found:
            yield f"{way}: {name}", their, our


def main() -> int:
    """Compare; return 1 if they differ."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=100, help="observations (default: %(default)s)")
    parser.add_argument("--fixture", type=Path, help="write LeRobot's policy and its results here")
    args = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.manual_seed(0)
    print(f"LeRobot {lerobot_version}, torch {torch.__version__}, transformers {transformers.__version__}")
    worst = max(compare(kind, args.count) for kind in STATISTICS)
    if args.fixture is not None:
        write_fixture(args.fixture)
    return int(not worst <= TOLERANCE)


def write_fixture(out: Path) -> None:
    """Write a policy of LeRobot, with 8 observations and its results."""
    torch.manual_seed(0)
    drawn = draw(8)
    with tempfile.TemporaryDirectory() as name:
        make_theirs(Path(name))
        actions, losses = run_theirs(Path(name), drawn)
        shutil.copytree(name, out, dirs_exist_ok=True, copy_function=shutil.copyfile)
    tensors = {**drawn["observation"], **{key: drawn[key] for key in ("action", "noise", "time")}}
    save_file({**tensors, "actions": actions, "losses": losses}, out / "expected.safetensors")


if __name__ == "__main__":
    raise SystemExit(main())
