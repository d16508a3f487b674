"""A bucket that speaks the part of S3's protocol which pyarrow needs, in the memory of this process."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import BinaryIO
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

PAGE = 5  # keys in a listing, so that listings have several pages
WRITTEN = 1_790_000_000  # seconds since 1970
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "somebody",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class ObjectStore:
    """`objects` holds the content of each key, `changed` when some of them were written, if not at WRITTEN, and
    `refused` the keys that cannot be written."""

    def __init__(self, port: int):
        self.options = f"?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        self.objects: dict[str, bytes] = {}
        self.changed: dict[str, int] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.refused = re.compile("^$")
        self.refuses_parts = False  # of uploads that have begun
        self.lock = threading.Lock()

    def address(self, name: str) -> str:
        return f"s3://bucket/{name}{self.options}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: ObjectStore

    def log_message(self, *_) -> None:
        pass

    def answer(self, code: int = 200, body: bytes | str = b"", **headers: str) -> None:
        content = body.encode() if isinstance(body, str) else body
        self.send_response(code)
        for name, value in {"Content-Length": str(len(content)), "ETag": '"0"', **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def handle_request(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = read_chunks(self.rfile)
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "aws-chunked" in self.headers.get("Content-Encoding", ""):
            body = read_chunks(BytesIO(body))
        url = urlsplit(self.path)
        _, _, key = unquote(url.path).lstrip("/").partition("/")
        options = dict(parse_qsl(url.query, keep_blank_values=True))
        with self.store.lock:
            self.serve(key, options, body)

    def serve(self, key: str, options: dict[str, str], body: bytes) -> None:
        objects, uploads = self.store.objects, self.store.uploads
        match self.command:
            case "GET" if "list-type" in options:
                self.answer(body=self.list_page(options), Content_Type="application/xml")
            case "GET" | "HEAD" if key not in objects:
                self.answer(404)
            case "GET" | "HEAD":
                self.send_object(objects[key], self.store.changed.get(key, WRITTEN))
            case "POST" if "delete" in options:
                for name in re.findall(rb"<Key>(.*?)</Key>", body):
                    objects.pop(name.decode(), None)
                self.answer(body="<DeleteResult/>")
            case "DELETE":
                objects.pop(key, None)
                self.answer(204)
            case "POST" | "PUT" if self.store.refused.search(key):
                self.answer(403)
            case "POST" if "uploads" in options:
                uploads[key] = {}
                self.answer(
                    body="<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"
                )
            case "PUT" if "partNumber" in options and self.store.refuses_parts:
                self.answer(403)
            case "PUT" if "partNumber" in options:
                uploads[key][int(options["partNumber"])] = body
                self.answer()
            case "POST":  # an object appears when its upload is complete
                objects[key] = b"".join(part for _, part in sorted(uploads.pop(key).items()))
                self.answer(
                    body="<CompleteMultipartUploadResult><ETag>0</ETag></CompleteMultipartUploadResult>"
                )
            case "PUT":
                objects[key] = body
                self.answer()

    def send_object(self, content: bytes, written: int) -> None:
        changed = {"Last_Modified": formatdate(written, usegmt=True)}
        if bounds := re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            first, last = int(bounds[1]), min(int(bounds[2]), len(content) - 1)
            changed["Content_Range"] = f"bytes {first}-{last}/{len(content)}"
            self.answer(206, content[first : last + 1], **changed)
        else:
            self.answer(200, content, **changed)

    def list_page(self, options: dict[str, str]) -> str:
        objects, changed = self.store.objects, self.store.changed
        prefix, after = options.get("prefix", ""), options.get("continuation-token", "")
        keys = sorted(key for key in objects if key.startswith(prefix) and key > after)
        page = keys[:PAGE]
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(objects[key])}</Size>"
            f"<LastModified>{iso_time(changed.get(key, WRITTEN))}</LastModified></Contents>"
            for key in page
        )
        more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if keys[PAGE:] else ""
        truncated = str(bool(more)).lower()
        return (
            f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{contents}{more}"
            f"<KeyCount>{len(page)}</KeyCount></ListBucketResult>"
        )

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_request


def read_chunks(file: BinaryIO) -> bytes:
    """Read chunks, each after its size, up to an empty one."""
    chunks = []
    while size := int(file.readline(), 16):
        chunks.append(file.read(size))
        file.readline()
    file.readline()
    return b"".join(chunks)


def iso_time(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.000Z}"


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundHandler", (Handler,), {}))
    store = server.RequestHandlerClass.store = ObjectStore(server.server_port)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        try:
            yield store
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
