"""A small server on this machine with the part of the Hugging Face hub's HTTP API that uploads and downloads need."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants

TOKEN = "hf_of_the_tests"


class HubServer(ThreadingHTTPServer):
    """Repositories in memory: the files of each commit, and the newest commit of each branch."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.commits: dict[str, dict[str, bytes]] = {}
        self.branches: dict[str, dict[str, str]] = {}
        self.private: dict[str, bool] = {}
        self.large: dict[str, bytes] = {}  # by SHA-256
        self.cards: list[str] = []  # whose metadata a client asked about
        self.requests: list[str] = []

    def create(self, repo_id: str, private: bool = False) -> None:
        self.private[repo_id] = private
        self.branches[repo_id] = {"main": self.commit({})}

    def commit(self, files: dict[str, bytes]) -> str:
        name = hashlib.sha1(f"{len(self.commits)}".encode()).hexdigest()
        self.commits[name] = files
        return name

    def files(self, repo_id: str, revision: str = "main") -> dict[str, bytes]:
        return self.commits[self.branches[repo_id][revision]]


class _Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def answer(self, value: Any = None, status: int = 200, **headers: str) -> None:
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, each in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), each)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_GET(self) -> None:
        self.reply(b"")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self.reply(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    do_PUT = do_POST

    def reply(self, body: bytes) -> None:
        path = self.path.partition("?")[0]
        self.server.requests.append(f"{self.command} {path}")
        for pattern, function in ROUTES.items():
            if found := re.fullmatch(pattern, path):
                parts = found.groupdict()
                if (repo_id := parts.get("repo_id")) is not None and not self.may_use(repo_id):
                    return self.answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
                return function(self, body, **parts)
        return self.answer({"error": f"no {path} here"}, 404)

    def may_use(self, repo_id: str) -> bool:
        """A private repository, and all that is written, needs the token."""
        known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        reading = self.command in ("GET", "HEAD") and not self.server.private.get(repo_id, True)
        return repo_id in self.server.branches and (known or reading)

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        repo_id = "/".join(each for each in (asked["organization"], asked["name"]) if each)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.answer({"error": "Invalid credentials"}, 401)
        if repo_id in self.server.branches:
            return self.answer({"error": "You already created this", "url": f"{self.server.url}/{repo_id}"}, 409)
        self.server.create(repo_id, asked.get("visibility") == "private" or bool(asked.get("private")))
        return self.answer({"url": f"{self.server.url}/{repo_id}", "name": repo_id, "id": repo_id})

    def validate(self, body: bytes) -> None:
        self.server.cards.append(json.loads(body)["content"])
        self.answer({"errors": [], "warnings": []})

    def preupload(self, body: bytes, repo_id: str, revision: str) -> None:
        mode = {True: "lfs", False: "regular"}
        files = [
            {"path": each["path"], "uploadMode": mode[each["path"].endswith(".safetensors")], "shouldIgnore": False}
            for each in json.loads(body)["files"]
        ]
        self.answer({"files": files})

    def batch(self, body: bytes, repo_id: str) -> None:
        asked = json.loads(body)["objects"]
        objects = [
            {**each, "actions": {"upload": {"href": f"{self.server.url}/large/{each['oid']}"}}} for each in asked
        ]
        self.answer({"transfer": "basic", "objects": objects})

    def keep(self, body: bytes, oid: str) -> None:
        assert hashlib.sha256(body).hexdigest() == oid
        self.server.large[oid] = body
        self.answer()

    def commit(self, body: bytes, repo_id: str, revision: str) -> None:
        if revision not in self.server.branches[repo_id]:
            return self.answer({"error": "Invalid rev id"}, 404, X_Error_Code="RevisionNotFound")
        files = dict(self.server.files(repo_id, revision))
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.large[value["oid"]]
        name = self.server.branches[repo_id][revision] = self.server.commit(files)
        url = f"{self.server.url}/{repo_id}/commit/{name}"
        return self.answer({"commitUrl": url, "commitOid": name, "success": True})

    def about(self, body: bytes, repo_id: str, revision: str = "main") -> None:
        name = self.server.branches[repo_id].get(revision, revision)
        if name not in self.server.commits:
            return self.answer({"error": "Invalid rev id"}, 404, X_Error_Code="RevisionNotFound")
        siblings = [{"rfilename": each} for each in self.server.commits[name]]
        return self.answer({"id": repo_id, "sha": name, "siblings": siblings, "private": False, "tags": []})

    def tree(self, body: bytes, repo_id: str, revision: str) -> None:
        files = self.server.commits[revision]
        found = [
            {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
            for path, content in files.items()
        ]
        self.answer(found)

    def download(self, body: bytes, repo_id: str, revision: str, path: str) -> None:
        name = self.server.branches[repo_id].get(revision, revision)
        content = self.server.commits[name][path]
        self.answer(content, X_Repo_Commit=name, ETag=f'"{hashlib.sha256(content).hexdigest()}"')


_ID = r"(?P<repo_id>[\w.-]+/[\w.-]+)"
ROUTES = {
    "/api/repos/create": _Handler.create,
    "/api/validate-yaml": _Handler.validate,
    "/large/(?P<oid>[0-9a-f]+)": _Handler.keep,
    f"/{_ID}.git/info/lfs/objects/batch": _Handler.batch,
    f"/api/models/{_ID}/preupload/(?P<revision>[^/]+)": _Handler.preupload,
    f"/api/models/{_ID}/commit/(?P<revision>[^/]+)": _Handler.commit,
    f"/api/models/{_ID}/tree/(?P<revision>[^/]+)": _Handler.tree,
    f"/api/models/{_ID}/revision/(?P<revision>[^/]+)": _Handler.about,
    f"/api/models/{_ID}": _Handler.about,
    f"/{_ID}/resolve/(?P<revision>[^/]+)/(?P<path>.+)": _Handler.download,
}


@contextmanager
def serving(folder: Path) -> Iterator[HubServer]:
    """Start a server, and let huggingface_hub use it and nothing else: no token, cache or address of the user."""
    with HubServer() as server, pytest.MonkeyPatch.context() as patch:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        for name, value in (
            ("ENDPOINT", server.url),  # which is HF_ENDPOINT, read when the package is imported
            ("HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}"),
            ("HF_HUB_CACHE", str(folder / "cache")),
            ("HF_TOKEN_PATH", str(folder / "token")),
            ("HF_STORED_TOKENS_PATH", str(folder / "tokens")),
            ("HF_HUB_DISABLE_XET", True),  # the hub's own protocol for large files; without it they go by Git LFS
            ("HF_HUB_DISABLE_TELEMETRY", True),
            ("HF_HUB_OFFLINE", False),
        ):
            patch.setattr(constants, name, value)
        patch.setenv("HF_TOKEN", TOKEN)
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("no_proxy", "127.0.0.1")
        huggingface_hub.close_session()  # a session that knows another proxy
        try:
            yield server
        finally:
            huggingface_hub.close_session()
            server.shutdown()
