"""A small HTTP server for a folder, which misbehaves when it is told to."""

from __future__ import annotations

import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

# What it can do instead of answering rightly.
FAULTS = ("refuses", "too many", "cut off", "garbage", "closes", "silent", "slow")


class Server(ThreadingHTTPServer):
    """Serves ``folder``; ``fault`` says what happens to chunks, the first ``times`` times they are asked for."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.fault, self.times, self.only = folder, "", 0, ""
        self.asked: Counter[str] = Counter()
        self.ended = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def misbehave(self, fault: str, times: int = 1 << 30, only: str = "") -> None:
        """From now on; ``only`` is a part of the chunk's key."""
        self.fault, self.times, self.only = fault, times, only
        self.asked.clear()

    def close(self) -> None:
        self.ended.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        server = self.server
        key = self.path.lstrip("/").partition("?")[0]
        path = server.folder / key
        chunk = "/c/" in key
        if not path.is_file():
            return self._send(404, b"", body)
        data = path.read_bytes()
        if body and chunk and server.fault and server.only in key:
            server.asked[key] += 1
            if server.asked[key] <= server.times:
                return self._misbehave(server.fault, data)
        status, extra = 200, {}
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes="):
            first, _, last = asked[6:].partition("-")
            low = int(first) if first else len(data) - int(last)
            high = int(last) + 1 if first and last else len(data)
            extra = {"Content-Range": f"bytes {low}-{min(high, len(data)) - 1}/{len(data)}"}
            status, data = 206, data[low:high]
        return self._send(status, data, body, **extra)

    def _misbehave(self, fault: str, data: bytes) -> None:
        if fault == "refuses":
            self._send(503, b"not now")
        elif fault == "too many":
            self._send(429, b"slow down")
        elif fault == "garbage":
            self._send(200, bytes(len(data)))
        elif fault == "slow":
            self.server.ended.wait(0.3)
            self._send(200, data)
        elif fault == "cut off":
            self._send(200, data[: len(data) // 2], length=len(data))
            self.close_connection = True
        elif fault == "closes":
            self.close_connection = True
        elif fault == "silent":
            self.server.ended.wait(60)
            self.close_connection = True

    def _send(
        self, status: int, data: bytes, body: bool = True, length: int | None = None, **extra: str
    ) -> None:
        self.send_response(status)
        for name, value in extra.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Not to the test's output."""
