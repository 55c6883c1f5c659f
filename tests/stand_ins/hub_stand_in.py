"""A stand-in of the Hugging Face hub's HTTP interface: as much of it as downloads and uploads of models use.

It knows every request that it answered, and refuses any other.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

_REPOSITORY = r"([\w.-]+/[\w.-]+)"


@dataclass
class Repository:
    """Commits, oldest first, each with all its files; the last one is ``main``."""

    private: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def commit(self, files: Mapping[str, bytes]) -> str:
        before = next(reversed(self.commits.values()), {})
        sha = hashlib.sha1(repr((len(self.commits), sorted(files.items()))).encode()).hexdigest()
        self.commits[sha] = {**before, **files}
        return sha

    def sha(self, revision: str) -> str | None:
        if revision == "main":
            return next(reversed(self.commits), None)
        return self.tags.get(revision, revision if revision in self.commits else None)


@dataclass
class StandIn:
    """The hub: its repositories, the users' tokens, and what was asked of it."""

    endpoint: str = ""
    token: str = "hf_test"
    repositories: dict[str, Repository] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


class _Refused(Exception):
    def __init__(self, status: int, code: str = "", url: str = "") -> None:
        self.status, self.code, self.url = status, code, url


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: StandIn

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        body = self._body()
        for method, pattern, answer in _ROUTES:
            if self.command in method.split() and (match := re.fullmatch(pattern, path)):
                self.hub.asked.append(f"{self.command} {path}")
                try:
                    status, headers, content = 200, {}, answer(self, body, *match.groups())
                    if isinstance(content, tuple):
                        headers, content = content
                except _Refused as refused:
                    status, headers, content = (
                        refused.status,
                        {"X-Error-Code": refused.code},
                        {"error": refused.code, "url": refused.url},
                    )
                break
        else:
            self.hub.refused.append(f"{self.command} {path}")
            status, headers, content = 404, {}, {"error": "no such route"}
        if not isinstance(content, bytes):
            headers, content = {**headers, "Content-Type": "application/json"}, json.dumps(content).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_PUT = _answer

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = [b""]
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def logged_in(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {self.hub.token}"

    def repository(self, name: str) -> Repository:
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.private and not self.logged_in()):
            raise _Refused(404 if self.logged_in() else 401, "RepoNotFound")
        return repository

    def info(self, _: bytes, name: str, revision: str | None = None) -> object:
        repository = self.repository(name)
        sha = repository.sha(revision or "main")
        if revision and sha is None:
            raise _Refused(404, "RevisionNotFound")
        siblings = [{"rfilename": path} for path in sorted(repository.commits.get(sha or "", {}))]
        return {"id": name, "sha": sha, "private": repository.private, "siblings": siblings}

    def file(self, _: bytes, name: str, revision: str, path: str) -> object:
        repository = self.repository(name)
        sha = repository.sha(revision)
        if sha is None:
            raise _Refused(404, "RevisionNotFound")
        if path not in repository.commits[sha]:
            raise _Refused(404, "EntryNotFound")
        content = repository.commits[sha][path]
        return {"X-Repo-Commit": sha, "ETag": f'"{hashlib.sha256(content).hexdigest()}"'}, content

    def create(self, body: bytes) -> object:
        if not self.logged_in():
            raise _Refused(401)
        asked = json.loads(body)
        name = f"{asked['organization']}/{asked['name']}"
        if name in self.hub.repositories:
            raise _Refused(409, url=f"{self.hub.endpoint}/{name}")
        self.hub.repositories[name] = Repository(private=asked.get("visibility") == "private")
        return {"url": f"{self.hub.endpoint}/{name}"}

    def validate(self, body: bytes) -> object:
        assert json.loads(body)["content"].startswith("---\n")
        return {"errors": [], "warnings": []}

    def preupload(self, body: bytes, name: str, revision: str) -> object:
        self.repository(name)
        names = [file["path"] for file in json.loads(body)["files"]]
        large = {one: "lfs" if one.endswith(".safetensors") else "regular" for one in names}
        return {"files": [{"path": one, "uploadMode": mode, "shouldIgnore": False} for one, mode in large.items()]}

    def batch(self, body: bytes, name: str) -> object:
        places = [
            {**one, "actions": {"upload": {"href": f"{self.hub.endpoint}/lfs/{one['oid']}"}}}
            for one in json.loads(body)["objects"]
        ]
        return {"transfer": "basic", "objects": places}

    def put(self, body: bytes, oid: str) -> object:
        assert hashlib.sha256(body).hexdigest() == oid
        self.hub.large[oid] = body
        return {}

    def commit(self, body: bytes, name: str, revision: str) -> object:
        files = {}
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.hub.large[value["oid"]]
        sha = self.repository(name).commit(files)
        return {"commitUrl": f"{self.hub.endpoint}/{name}/commit/{sha}", "commitOid": sha}


_ROUTES: list[tuple[str, str, Callable[..., object]]] = [
    ("GET", f"/api/models/{_REPOSITORY}", _Handler.info),
    ("GET", f"/api/models/{_REPOSITORY}/revision/(.+)", _Handler.info),
    ("HEAD GET", f"/{_REPOSITORY}/resolve/([^/]+)/(.+)", _Handler.file),
    ("POST", "/api/repos/create", _Handler.create),
    ("POST", "/api/validate-yaml", _Handler.validate),
    ("POST", f"/api/models/{_REPOSITORY}/preupload/([^/]+)", _Handler.preupload),
    ("POST", rf"/{_REPOSITORY}\.git/info/lfs/objects/batch", _Handler.batch),
    ("PUT", "/lfs/([0-9a-f]+)", _Handler.put),
    ("POST", f"/api/models/{_REPOSITORY}/commit/([^/]+)", _Handler.commit),
]


@contextlib.contextmanager
def stand_in() -> Iterator[StandIn]:
    """A hub on this machine while the block runs."""
    hub = StandIn()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
