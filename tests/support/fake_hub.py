"""A server that speaks the part of the Hugging Face hub's API by which models are pushed, and keeps what it gets."""

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from huggingface_hub import constants

TOKEN = "hf_of_me"
TAKEN = "other/name"  # a repository that the owner of the token may read alone


class FakeHub(ThreadingHTTPServer):
    """`files` are those of each (repository, revision); `large` is a pattern of the names that it keeps as LFS."""

    daemon_threads = True

    def __init__(self, large: str):
        super().__init__(("127.0.0.1", 0), Handler)
        self.large, self.objects = re.compile(large), dict[str, bytes]()
        self.visibilities: dict[str, str | None] = {TAKEN: None}
        self.files: dict[tuple[str, str], dict[str, bytes]] = {}
        self.messages: list[str] = []
        self.address = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def log_message(self, *_) -> None:
        pass

    def answer(self, content: Any, status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        if path.startswith("/storage/"):
            self.server.objects[path.removeprefix("/storage/")] = body
            return self.answer({})
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.answer({"error": "Invalid username or password."}, 401)
        if path == "/api/repos/create":
            return self.create(json.loads(body))
        if path == "/api/validate-yaml":  # of a card
            assert json.loads(body)["content"].startswith("---\n")
            return self.answer({"errors": [], "warnings": []})
        name, action = re.fullmatch(r"(?:/api/models)?/([\w.-]+/[\w-]+)(?:\.git)?/?(.*)", path).groups()
        if name not in self.server.visibilities:
            return self.answer({"error": "Repository not found"}, 404)
        if name == TAKEN and action:
            return self.answer({"error": "You may not write there."}, 403)
        action, _, revision = action.partition("/")
        match action:
            case "preupload":
                self.choose_modes(json.loads(body)["files"])
            case "info":  # of LFS
                self.offer_storage(json.loads(body)["objects"])
            case "commit":
                self.commit(name, revision, [json.loads(line) for line in body.splitlines()])
            case "branch":
                self.server.files[name, revision] = {}
                self.answer({})
            case _:  # whether the token may write, facts
                self.answer({"id": name, "sha": "0", "siblings": []})
        return None

    do_GET = do_POST = do_PUT = handle_request

    def create(self, asked: dict) -> None:
        name = f"{asked['organization'] or 'me'}/{asked['name']}"
        url = {"url": f"{self.server.address}/{name}"}
        if not name.startswith("me/"):
            self.answer({"error": "You don't have the rights to create a model under this namespace."}, 403)
        elif name in self.server.visibilities:
            self.answer(url | {"error": "You already created this model repo"}, 409)
        else:
            self.server.visibilities[name] = asked.get("visibility")
            self.server.files[name, "main"] = {}
            self.answer(url)

    def choose_modes(self, files: list[dict]) -> None:
        modes = [
            {"path": file["path"], "shouldIgnore": False,
             "uploadMode": "lfs" if self.server.large.search(file["path"]) else "regular"}
            for file in files
        ]  # fmt: skip
        self.answer({"files": modes})

    def offer_storage(self, objects: list[dict]) -> None:
        offers = [
            one | {"actions": {"upload": {"href": f"{self.server.address}/storage/{one['oid']}"}}}
            for one in objects
        ]
        self.answer({"transfer": "basic", "objects": offers})

    def commit(self, name: str, revision: str, lines: list[dict]) -> None:
        files = self.server.files[name, revision]
        for line in lines:
            value = line["value"]
            match line["key"]:
                case "header":
                    self.server.messages.append(value["summary"])
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    content = self.server.objects[value["oid"]]
                    assert sha256(content).hexdigest() == value["oid"]
                    files[value["path"]] = content
        self.answer({"commitUrl": f"{self.server.address}/{name}/commit/1", "commitOid": "1"})


@contextmanager
def running_hub(large: str = "$^", token: str = TOKEN) -> Iterator[FakeHub]:
    """Within the block, huggingface_hub knows this hub alone. LFS files need no storage of Xet."""
    with FakeHub(large) as hub, pytest.MonkeyPatch.context() as patch:
        threading.Thread(target=hub.serve_forever, args=(0.01,), daemon=True).start()
        patch.setattr(constants, "ENDPOINT", hub.address)
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.setattr(constants, "HF_HUB_DISABLE_XET", large != "$^")
        patch.setattr(constants, "HF_TOKEN_PATH", "/nowhere")
        patch.setenv("HF_TOKEN", token)
        yield hub
        hub.shutdown()
