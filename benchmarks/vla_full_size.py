"""An iteration of PPO with a SmolVLA of the published size (450 million parameters, random weights): memory and time.

python benchmarks/vla_full_size.py --model gradient_checkpointing=true cache_vision=true

The model has the shapes of `lerobot/smolvla_base`: SmolVLM2's vision encoder and 16 of its 32 layers, chunks of 50
actions, states and actions of 32 numbers, images of 512 x 512 pixels. The task is PushColoredCubeRL. Prints one line of
JSON: peak resident memory of the process in GiB, seconds, and what was trained.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from embodichain.agents.rl.train import train_from_config
from embodichain.utils.utility import load_json

CONFIG = Path("configs/agents/rl/push_colored_cube/train_config.json")
MODEL: dict[str, Any] = {
    "vision": {
        **{"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
        **{"image_size": 512, "patch_size": 16},
    },
    "language": {
        **{"hidden_size": 960, "intermediate_size": 2560, "num_hidden_layers": 16, "num_attention_heads": 15},
        **{"num_key_value_heads": 5, "head_dim": 64, "vocab_size": 49280, "rms_norm_eps": 1e-5},
    },
    **{"flow_length": 50, "chunk_length": 10, "state_width": 32, "action_width": 32},
}


def write_config(folder: Path, args: argparse.Namespace) -> Path:
    """Write the config of one iteration without evaluation."""
    data = load_json(CONFIG)
    steps = args.decisions * MODEL["chunk_length"]
    data["trainer"] |= {"num_envs": args.envs, "buffer_size": steps, "iterations": 1, "enable_eval": False}
    data["trainer"] |= {"device": args.device, "events": {}}
    model = MODEL | {key: json.loads(value) for key, value in (pair.split("=", 1) for pair in args.model)}
    vla = {"model_path": None, "model_class": "embodichain.agents.rl.models.SmolVLA", "model_config": model}
    data["policy"]["vla_config"] = vla | ({"lora": {"rank": args.lora}} if args.lora else {})
    data["algorithm"]["cfg"] |= {"n_epochs": 1, "batch_size": args.minibatch, "learning_rate": 1e-6}
    path = folder / "train_config.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def main() -> None:
    """Train for an iteration, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--envs", type=int, default=2, help="environments (default: %(default)s)")
    parser.add_argument("--decisions", type=int, default=2, help="of each environment (default: %(default)s)")
    parser.add_argument("--minibatch", type=int, default=2, help="decisions (default: %(default)s)")
    parser.add_argument("--lora", type=int, help="rank of adapters instead of the whole expert")
    parser.add_argument("--device", default="cpu", help="default: %(default)s")
    parser.add_argument("--model", nargs="*", default=[], metavar="KEY=VALUE", help="of model_config, as JSON")
    args = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        summary = train_from_config(str(write_config(Path(name), args)))
    run = Path(summary["run_folder"])
    metrics = json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    weights = torch.load(summary["checkpoint"], weights_only=True, mmap=True)["policy"]
    result = {
        "parameters": sum(value.numel() for value in weights.values()),
        "decisions": args.envs * args.decisions,
        "minibatch": args.minibatch,
        "model": args.model,
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "collect_s": round(metrics["time/collect_seconds"], 1),
        "update_s": round(metrics["time/update_seconds"], 1),
        "all_s": round(time.perf_counter() - start, 1),
        "approx_kl": metrics["train/approx_kl"],
        "run_folder": str(run),
    }
    if args.device != "cpu":
        result["peak_device_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
