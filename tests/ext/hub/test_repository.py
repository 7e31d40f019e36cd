"""``embodichain push`` and ``hf:user/name``, against a server that speaks the Hub's protocol for small files."""

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from embodichain.agents.rl.checkpoint.saved_run import find_run, names_run
from embodichain.cli import main
from embodichain.utils import CommandFailedError
from tests.agents.rl.fakes import assert_same

pytest.importorskip("huggingface_hub")
pytestmark = pytest.mark.e2e

COMMIT = "1" * 40


class Hub(BaseHTTPRequestHandler):
    """One repository, me/pole, whose files are all regular ones."""

    files: dict[str, bytes]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = urlsplit(self.path).path
        if path == "/api/repos/create":
            self.answer({"url": f"http://{self.headers['Host']}/me/pole"})
        elif "/preupload/" in path:
            names = [file["path"] for file in json.loads(body)["files"]]
            self.answer({"files": [{"path": x, "uploadMode": "regular", "shouldIgnore": False} for x in names]})
        elif "/commit/" in path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            url = f"http://{self.headers['Host']}/me/pole/commit/{COMMIT}"
            self.answer({"commitUrl": url, "commitOid": COMMIT, "success": True})
        else:
            self.answer({})

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        name = path.partition("/resolve/")[2].partition("/")[2]
        if name in self.files:
            data = self.files[name]
            self.send(data, {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": COMMIT})
        elif path.startswith("/api/models/me/pole"):
            tree = [{"type": "file", "path": x, "size": len(y), "oid": COMMIT} for x, y in self.files.items()]
            siblings = [{"rfilename": name} for name in self.files]
            self.answer(tree if "/tree/" in path else {"id": "me/pole", "sha": COMMIT, "siblings": siblings})
        else:
            self.send(b"", {"X-Error-Code": "EntryNotFound" if name else "RepoNotFound"}, status=404)

    do_HEAD = do_GET  # noqa: N815 (the server's names)

    def answer(self, value: Any) -> None:
        self.send(json.dumps(value).encode(), {"Content-Type": "application/json"})

    def send(self, data: bytes, headers: dict[str, str], status: int = 200) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Nothing: the tests' output is theirs."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, bytes]]:
    """The files of the server's repository."""
    files: dict[str, bytes] = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Hub", (Hub,), {"files": files}))
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    for module in ("constants", "hf_api", "file_download"):
        monkeypatch.setattr(f"huggingface_hub.{module}.ENDPOINT", address, raising=False)
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", "hf_of_nobody")
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "cache"))
    yield files
    server.shutdown()
    server.server_close()


def test_pushed_run_comes_back_to_the_bit(
    run_folder: Path, hub: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["push", "latest", "me/pole"]) == 0
    assert "published  http://127.0.0.1" in capsys.readouterr().out
    assert {"README.md", "config.json", "checkpoints/latest.json"} <= hub.keys()
    card = hub["README.md"].decode()
    assert "trained by `ppo`" in card
    assert "| success | " in card
    assert "embodichain play hf:me/pole" in card
    assert names_run("hf:me/pole")
    assert_same(find_run("hf:me/pole").content, find_run(str(run_folder)).content)
    assert main(["eval", "hf:me/pole", "--episodes", "4", "--envs", "2"]) == 0
    assert "success rate" in capsys.readouterr().out


def test_folder_of_an_export_is_pushed_as_it_is(
    tmp_path: Path, hub: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: name.encode() for name in ("README.md", "manifest.json", "policy.onnx")}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    assert main(["push", str(tmp_path), "me/pole"]) == 0
    assert "published  http://127.0.0.1" in capsys.readouterr().out
    assert hub == files


def test_unknown_repository_is_one_line(run_folder: Path, hub: dict[str, bytes]) -> None:
    for name, reason in (("me/nothing", "Repository Not Found"), ("a/b/c", "Repo id must be")):
        with pytest.raises(CommandFailedError, match=rf"^hf:{name}: .*{reason}"):
            find_run(f"hf:{name}")


def test_hub_that_is_not_reached_is_one_line_in_a_new_process(tmp_path: Path) -> None:
    """Other tests import more of the package, whose parts come with their imports alone."""
    environment = os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "embodichain.cli", "eval", "hf:me/pole"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: hf:me/pole: http://127.0.0.1:9: ")
    assert len(done.stderr.splitlines()) == 1
