"""Repositories of the Hugging Face Hub with a run each: ``embodichain push``, and runs named ``hf:user/name``."""

import argparse
import importlib.util
import shutil
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from embodichain.agents.rl.checkpoint.saved_run import SavedRun, find_run
from embodichain.commands.arguments import add_run
from embodichain.utils import CommandFailedError, ConfigError, install_extra, write_json

EXAMPLES = (
    "latest me/push-cube",
    "outputs/go2_flat_20260101_120000/best me/go2-walks --private",
    "outputs/microduck_flat_quickstart_20260101_120000/export/microduck me/microduck-walk",
)

_LONGEST = 400  # letters of an error's message
_COPIED = ("config.json", "summary.json", "metrics.jsonl", "machine.json", "learning_curve.png")
_CARD = Path(__file__).with_name("card.md.tmpl")


def fetch(name: str) -> Path:
    """Download a run's repository, ``user/name`` or ``user/name@revision``, and return its folder."""
    repo, _, revision = name.partition("@")
    with _opened_hub(f"hf:{name}") as hub:
        folder = Path(hub.constants.HF_HOME, "embodichain", name.replace("/", "--"))
        hub.snapshot_download(repo, revision=revision or None, local_dir=folder)  # files, and no links
    return folder


def push(target: str, repo: str, is_private: bool) -> str:
    """Publish a run's checkpoint with its config, results and card; return the repository's address.

    A ``target`` may also be a folder of ``export --format microduck``, which is published as it is.
    """
    with tempfile.TemporaryDirectory() as staged:
        is_ready = Path(target, "manifest.json").is_file()
        folder = Path(target if is_ready else staged)
        if not is_ready:
            stage(find_run(target), repo, folder)
        with _opened_hub(repo) as hub:
            api = hub.HfApi()
            api.create_repo(repo, private=is_private, exist_ok=True)
            api.upload_folder(repo_id=repo, folder_path=folder, commit_message=f"Add {repo}")
            return f"{hub.constants.ENDPOINT}/{repo}"


@contextmanager
def _opened_hub(name: str) -> Iterator[Any]:
    """Yield the package huggingface_hub; its errors in the block become one line that begins with ``name``."""
    if importlib.util.find_spec("huggingface_hub") is None:
        raise ConfigError(f"the Hugging Face Hub needs huggingface_hub: {install_extra('hub')}")
    import huggingface_hub.constants  # noqa: PLC0415 (optional extra)

    try:
        yield huggingface_hub
    except Exception as error:
        text = textwrap.shorten(str(error), _LONGEST, placeholder=" ...")
        raise CommandFailedError(f"{name}: {huggingface_hub.constants.ENDPOINT}: {text}") from error


def stage(run: SavedRun, repo: str, folder: Path) -> None:
    """Write the files of a repository into an empty folder: a run's folder with one checkpoint, and the card."""
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir()
    shutil.copy(run.checkpoint, checkpoints)
    write_json(checkpoints / "latest.json", {"file": run.checkpoint.name, "step": run.content["global_step"]})
    for name in _COPIED:
        if (file := run.folder / name).is_file():
            shutil.copy(file, folder)
    evaluation = run.content["evaluation"] or {}
    videos = [run.folder / "videos" / Path(path).name for path in evaluation.get("videos", [])]
    video = next((path for path in videos if path.is_file()), None)
    if video is not None:
        shutil.copy(video, folder / "video.mp4")
    (folder / "README.md").write_text(card(run, repo, evaluation, video is not None), encoding="utf-8")


def card(run: SavedRun, repo: str, evaluation: Mapping[str, Any], has_video: bool) -> str:
    """Return the model card with the results of the checkpoint's last evaluation; without one they are left out."""
    config = run.content["config"]
    rows = {"environment steps": f"{run.content['global_step']:,}", "training": f"{run.content['train_seconds']:.0f} s"}
    if evaluation:
        rows["return"] = f"{evaluation['avg_reward']:.1f}, mean of {evaluation['episodes']} episodes"
    if evaluation.get("success_interval"):
        low, high = evaluation["success_interval"]
        rows["success"] = f"{evaluation['success_rate']:.1%} (95 % interval {low:.1%} to {high:.1%})"
    rows |= {name: f"{value:.4g}" for name, value in evaluation.get("metrics", {}).items()}
    return _CARD.read_text(encoding="utf-8").format(
        task=config["gym_config"]["id"],
        name=repo.partition("/")[2],
        algorithm=config["algorithm"]["name"],
        rows="\n".join(f"| {name} | {value} |" for name, value in rows.items()),
        video='\n<video controls src="video.mp4"></video>\n' if has_video else "",
        repo=repo,
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_run(parser)
    parser.add_argument("repo", metavar="USER/NAME", help="repository of the Hub; made if there is none")
    parser.add_argument("--private", action="store_true", help="a new repository is private")


def run(args: argparse.Namespace) -> int:
    """Publish; return 0."""
    print(f"published  {push(args.target, args.repo, args.private)}")
    return 0
