"""The notebook runs from its first cell to its last, with a shorter training."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

REPOSITORY = Path(__file__).resolve().parents[2]
SHORTER = [
    "trainer.device=cpu",
    "trainer.num_envs=8",
    "trainer.iterations=2",
    "trainer.buffer_size=8",
    "trainer.num_eval_episodes=2",
    "algorithm.cfg.batch_size=64",
    "algorithm.cfg.n_epochs=1",
]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what each code cell printed or showed, by the cell's first line."""
    notebook = nbformat.read(REPOSITORY / "examples/quickstart.ipynb", as_version=4)
    nbformat.validate(notebook)
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "configs").symlink_to(REPOSITORY / "configs")
    for cell in notebook.cells:
        assert not cell.get("outputs"), "a committed notebook has no outputs"
        cell.source = cell.source.replace("OVERRIDES = []", f"OVERRIDES = {SHORTER!r}")
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    return {cell.source.splitlines()[0]: str(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"}


@pytest.mark.e2e
def test_it_trains_draws_and_acts(cells: dict[str, str]) -> None:
    assert "of 2 episodes after" in cells["from embodichain.agents.rl.train import train_from_config"]
    assert "image/png" in cells["import json"]
    assert "episodes ended at the goal" in cells["from embodichain.lab.gym.envs.tasks.rl import build_env"]


@pytest.mark.e2e
def test_it_shows_the_video_inline(cells: dict[str, str]) -> None:
    assert "<video" in cells["from IPython.display import Video, display"]
