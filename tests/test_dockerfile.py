"""The image is built from what is committed, by the locked set-up."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
TEXT = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")


def has_daemon() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=60).returncode == 0


def test_its_python_is_one_that_the_package_supports_and_its_target_is_one_of_the_makefile() -> None:
    assert "FROM python:3.11-slim" in TEXT  # requirements.lock is made with Python 3.11
    (target, arguments) = re.findall(r"^RUN make (\S+) (.*)$", TEXT, re.MULTILINE)[0]
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert arguments == 'TORCH_INDEX="${TORCH_INDEX}"'
    assert re.search(r"^TORCH_INDEX \?=", makefile, re.MULTILINE)


def test_what_runs_is_not_root() -> None:
    instructions = re.findall(r"^([A-Z]+) ", TEXT, re.MULTILINE)
    assert instructions.index("USER") < instructions.index("ENTRYPOINT")
    assert instructions.index("USER") > instructions.index("RUN")


@pytest.mark.skipif(not has_daemon(), reason="no Docker daemon")
def test_image_is_built_and_answers() -> None:
    subprocess.run(["docker", "build", "--tag", "embodichain-test", str(REPOSITORY)], check=True)
    done = subprocess.run(
        ["docker", "run", "--rm", "embodichain-test", "list", "envs"], check=True, capture_output=True, text=True
    )
    assert "PushCubeRL" in done.stdout
    train = ["train", "cart_pole", "trainer.iterations=1", "trainer.num_eval_episodes=1"]
    run = ["docker", "run", "--rm", "--user", "1234", "embodichain-test", *train]
    done = subprocess.run(run, check=True, capture_output=True, text=True)
    assert "report" in done.stdout
    assert "Permission denied" not in done.stderr
