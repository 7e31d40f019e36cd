"""An iteration of PPO with a SmolVLA of the published size (450 million parameters, random weights): memory and time.

    python benchmarks/vla_full_size.py --model gradient_checkpointing=true cache_vision=true
    python benchmarks/vla_full_size.py --estimate --tflops 165 --bandwidth 1008

The model has the shapes of `lerobot/smolvla_base`: SmolVLM2's vision encoder and 16 of its 32 layers, chunks of 50
actions, states and actions of 32 numbers, images of 512 x 512 pixels. The task is PushColoredCubeRL. Prints one line of
JSON: peak resident memory of the process in GiB, seconds, and what was trained.

``--estimate`` runs nothing. It counts the operations of a decision and of an update on tensors without numbers, and
estimates the time on a GPU by its peak figures: the larger one of computing and of reading the weights. Activations,
rendering and physics, and the time between kernels are in the assumed ``--utilisation`` only.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from embodichain.agents.rl.models import SmolVLA
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


@dataclass(frozen=True)
class Work:
    """What a model of this size takes.

    Attributes:
        parameters, trained: numbers of them.
        euler_steps: passes through the expert.
        decision_gflop: operations of choosing one chunk of actions.
        update_gflop: of the forward and backward pass for one decision of a minibatch.
        held_mib: held for the gradients of one decision.
    """

    parameters: int
    trained: int
    euler_steps: int
    decision_gflop: float
    update_gflop: float
    held_mib: float


def count_work(config: dict[str, Any]) -> Work:
    """Count the operations of a model for PushColoredCubeRL; its tensors have shapes and no numbers."""
    mask = "transformers.models.smolvlm.modeling_smolvlm.create_bidirectional_mask"
    # Two functions read numbers: one that masks patches, of which none is masked, and the bounds of the stds.
    with FakeTensorMode(), mock.patch(mask, return_value=None):
        model = SmolVLA(**config, cameras=["front"], image_size=[64, 64], state_dim=9, action_dim=2)
        with mock.patch.object(model, "bounded_log_std", return_value=model.log_std):
            return work_of(model)


def work_of(model: SmolVLA) -> Work:
    """Count the operations of a model."""
    obs = {
        "image/front": torch.zeros(1, 64, 64, 3, dtype=torch.uint8),
        "state": torch.zeros(1, 9),
        "instruction": torch.ones(1, 8, dtype=torch.int64),
    }
    with sdpa_kernel(SDPBackend.MATH):  # fused attention is not counted
        with torch.no_grad(), FlopCounterMode(display=False) as decision:
            actions, _, _, *extra = model(obs)
        with FlopCounterMode(display=False) as update:
            judge(model, obs, actions, extra).backward()
    held: dict[int, torch.UntypedStorage] = {}

    def hold(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        held[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(hold, lambda tensor: tensor):
        judge(model, obs, actions, extra)
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    return Work(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        trained=sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
        euler_steps=model.cfg.denoising_steps,
        decision_gflop=decision.get_total_flops() / 1e9,
        update_gflop=update.get_total_flops() / 1e9,
        held_mib=sum(storage.nbytes() for key, storage in held.items() if key not in own) / 2**20,
    )


def judge(model: SmolVLA, obs: dict[str, Any], actions: torch.Tensor, extra: list[torch.Tensor]) -> torch.Tensor:
    """Return a sum that depends on all that a PPO loss depends on."""
    log_prob, entropy, value = model.evaluate_actions(obs, actions, *extra)
    return log_prob.sum() + entropy.sum() + value.sum()


def estimate(work: Work, args: argparse.Namespace) -> dict[str, Any]:
    """Return the estimate for one GPU; weights, gradients and moments are float32."""
    flops, bandwidth = args.tflops * 1e12 * args.utilisation, args.bandwidth * 1e9 * args.utilisation
    frozen, trained = 4 * (work.parameters - work.trained), 4 * work.trained  # bytes
    # The expert's weights are read in each Euler step, twice more for the gradients; Adam reads and writes 7 numbers.
    read = {"decision": frozen + work.euler_steps * trained}
    read["update"] = frozen + 3 * work.euler_steps * trained + 7 * trained
    batch = {"decision": args.envs, "update": args.minibatch}
    gflop = {"decision": work.decision_gflop, "update": work.update_gflop}
    seconds = {name: max(n * gflop[name] * 1e9 / flops, read[name] / bandwidth) for name, n in batch.items()}
    return {
        **asdict(work),
        "weights_gib": round((frozen + trained) / 2**30, 2),
        "gradients_and_moments_gib": round(3 * trained / 2**30, 2),
        "held_gib": round(args.minibatch * work.held_mib / 2**10, 2),
        "assumed": {name: getattr(args, name) for name in ("tflops", "bandwidth", "utilisation")},
        "envs": args.envs,
        "minibatch": args.minibatch,
        "s_for_a_decision_of_all_envs": round(seconds["decision"], 4),
        "s_for_an_update_on_a_minibatch": round(seconds["update"], 4),
    }


def model_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the ``model_config``."""
    return MODEL | {key: json.loads(value) for key, value in (pair.split("=", 1) for pair in args.model)}


def write_config(folder: Path, args: argparse.Namespace) -> Path:
    """Write the config of one iteration without evaluation."""
    data = load_json(CONFIG)
    steps = args.decisions * MODEL["chunk_length"]
    data["trainer"] |= {"num_envs": args.envs, "buffer_size": steps, "iterations": 1, "enable_eval": False}
    data["trainer"] |= {"device": args.device, "events": {}}
    vla = {"model_path": None, "model_class": "embodichain.agents.rl.models.SmolVLA", "model_config": model_of(args)}
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
    parser.add_argument("--estimate", action="store_true", help="run nothing: count operations, estimate for a GPU")
    peak = "its peak, dense bfloat16 (default: %(default)s, NVIDIA's for the RTX 4090)"
    parser.add_argument("--tflops", type=float, default=165.0, help=f"{peak}, TFLOP/s")
    parser.add_argument("--bandwidth", type=float, default=1008.0, help="of its memory (default: %(default)s), GB/s")
    parser.add_argument("--utilisation", type=float, default=0.3, help="assumed share of both (default: %(default)s)")
    args = parser.parse_args()
    if args.estimate:
        print(json.dumps({"estimated_not_measured": True, **estimate(count_work(model_of(args)), args)}))
        return
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
