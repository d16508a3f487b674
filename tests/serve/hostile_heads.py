"""Requests whose heads are wrong, unusual, or tell different lengths, with the statuses that they may have."""

import gzip
import json

from tests.serve.raw_client import head, post

EMBED = "/models/embedder/embed"
BODY = {"inputs": "the cat"}
CONTENT = json.dumps(BODY).encode()
GOOD = post(EMBED, BODY)
BOMB = gzip.compress(bytes(50_000_000), 9)


def framed(*lines: str, content: bytes = CONTENT, path: str = EMBED, method: str = "POST") -> bytes:
    about = [f"{method} {path} HTTP/1.1", "host: test", "content-type: application/json", *lines]
    return "\r\n".join(about).encode("latin-1") + b"\r\n\r\n" + content


def chunked(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)


LENGTH, CHUNKED = f"content-length: {len(CONTENT)}", "transfer-encoding: chunked"
# Name -> the bytes and the statuses that they may have. Whether the connection stays open is not said here.
SHAPES: dict[str, tuple[bytes, set[int]]] = {
    "two equal lengths": (framed(LENGTH, LENGTH), {400}),
    "two lengths": (framed(LENGTH, "content-length: 5"), {400}),
    "a list of lengths": (framed(f"{LENGTH}, {len(CONTENT)}"), {400}),
    "a negative length": (framed("content-length: -1"), {400}),
    "a length with a sign": (framed(f"content-length: +{len(CONTENT)}"), {400}),
    "a length in hexadecimal": (framed(f"content-length: {len(CONTENT):#x}"), {400}),
    "a length of 5000 digits": (framed("content-length: " + "9" * 5000), {400}),
    "a length of another alphabet": (framed("content-length: \xb2"), {400}),
    "an empty length": (framed("content-length:"), {400}),
    "a length beyond the limit": (framed("content-length: 99999999999", content=b""), {413}),
    "a length that is too small": (framed("content-length: 5"), {400}),
    "chunks and a length": (framed(CHUNKED, LENGTH, content=chunked(CONTENT)), {400}),
    "a length and chunks": (framed(LENGTH, CHUNKED, content=chunked(CONTENT)), {400}),
    "chunked twice": (framed("transfer-encoding: chunked, chunked", content=chunked(CONTENT)), {400}),
    "chunked, then identity": (framed("transfer-encoding: chunked, identity", content=chunked(CONTENT)), {400}),
    "an unknown encoding": (framed("transfer-encoding: xchunked", content=chunked(CONTENT)), {400}),
    "a space before the colon": (framed("transfer-encoding : chunked", content=chunked(CONTENT)), {400}),
    "a folded header": (framed(LENGTH, "x-a: b\r\n  c"), {400}),
    "a bare line feed": (framed(LENGTH, "x-a: b\nx-c: d"), {400}),
    "a NUL in a header": (framed(LENGTH, "x-a: b\0c"), {400}),
    "a header without a name": (framed(LENGTH, ": b"), {400}),
    "a header without a colon": (framed(LENGTH, "nonsense"), {400}),
    "a chunk of a wrong size": (framed(CHUNKED, content=b"zz\r\nabc\r\n0\r\n\r\n"), {400}),
    "a chunk of a negative size": (framed(CHUNKED, content=b"-1\r\nabc\r\n0\r\n\r\n"), {400}),
    "a chunk of a huge size": (framed(CHUNKED, content=b"f" * 17 + b"\r\nabc\r\n0\r\n\r\n"), {400}),
    "a chunk that is longer": (framed(CHUNKED, content=b"3\r\nabcdef\r\n0\r\n\r\n"), {400}),
    "chunks with extensions": (framed(CHUNKED, content=chunked(CONTENT).replace(b"\r\n", b";a=b\r\n", 1)), {200}),
    "a header of 1 MB": (framed(LENGTH, "x-a: " + "b" * 1_000_000), {400}),
    "a name of 1 MB": (framed(LENGTH, "x" * 1_000_000 + ": b"), {400}),
    "10,000 headers": (framed(LENGTH, *(f"x-{n}: some value" for n in range(10_000))), {400}),
    "trailers of 1 MB": (framed(CHUNKED, content=chunked(CONTENT)[:-2] + b"x-a: " + b"b" * 1_000_000 + b"\r\n\r\n"),
                         {400}),
    "a path of 1 MB": (head("GET", "/" + "a" * 1_000_000), {400}),
    "a gzip bomb": (framed("content-encoding: gzip", f"content-length: {len(BOMB)}", content=BOMB), {415}),
    "a gzip bomb that is not said": (framed(f"content-length: {len(BOMB)}", content=BOMB), {400}),
    "a gzip bomb as a transfer": (framed("transfer-encoding: gzip, chunked", content=chunked(BOMB)), {400}),
    "form data": (post(EMBED, CONTENT, {"content-type": "multipart/form-data; boundary=x"}), {415}),
    "no content type": (head("POST", EMBED, {"content-length": str(len(CONTENT))}) + CONTENT, {415}),
    "an empty body": (framed("content-length: 0", content=b""), {400}),
    "no body": (framed(content=b""), {400}),
    "a method that is none": (head("NONSENSE", EMBED), {400}),
    "a method in lower case": (head("get", "/health"), {400}),
    "TRACE": (head("TRACE", EMBED), {405}),
    "OPTIONS": (head("OPTIONS", EMBED), {405}),
    "OPTIONS of all": (head("OPTIONS", "*"), {400, 404}),
    "DELETE": (head("DELETE", EMBED), {405}),
    "CONNECT": (head("CONNECT", "example.com:443"), {400}),
    "CONNECT to a path": (head("CONNECT", EMBED), {400, 405}),
    "PRI": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400}),
    "an absolute target": (head("GET", "http://example.com/health"), {200}),
    "an absolute target of another scheme": (head("GET", "ftp://example.com/health"), {200, 400}),
    "a target without a slash": (head("GET", "health"), {400}),
    "a fragment": (head("GET", "/health#a"), {200, 400}),
    "a query": (head("GET", "/health?a=%00&b"), {200}),
    "two dots": (head("GET", "/models/%2e%2e/%2e%2e/info"), {404}),
    "two dots to a page": (head("GET", "/page/%2e%2e/application.py"), {404}),
    "plain dots to a page": (head("GET", "/page/../application.py"), {404}),
    "a NUL in the path": (head("GET", "/models/%00/info"), {404}),
    "a slash in the name": (head("GET", "/models/a%2Fb/info"), {404}),
    "bad percents": (head("GET", "/models/%zz%/info"), {404}),
    "a surrogate in the path": (head("GET", "/models/%ed%a0%80/info"), {404}),
    "invalid UTF-8 in the path": (head("GET", "/models/%ff%fe/info"), {404}),
    "a name of other letters": (head("GET", "/models/%E6%A8%A1%E5%9E%8B/info"), {404}),
    "bytes beyond ASCII in the path": (b"GET /models/\xe6\xa8\xa1/info HTTP/1.1\r\nhost: test\r\n\r\n", {400, 404}),
    "a tab in the path": (b"GET /\thealth HTTP/1.1\r\nhost: test\r\n\r\n", {400}),
    "an unknown expectation": (framed(LENGTH, "expect: 200-ok"), {200, 417}),
    "HTTP/1.0": (head("GET", "/health", version="HTTP/1.0"), {200}),
    "HTTP/1.0 that stays": (head("GET", "/health", {"connection": "keep-alive"}, "HTTP/1.0"), {200}),
    "HTTP/3.0": (head("GET", "/health", version="HTTP/3.0"), {400}),
    "HTTP/1.1 of many digits": (head("GET", "/health", version="HTTP/1.11111"), {400}),
    "HTTP/0.9": (b"GET /health\r\n\r\n", {200, 400}),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", {200, 400}),
    "two hosts": (head("GET", "/health", {"Host": "other"}), {200, 400}),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)), {400}),
    "nothing but zeros": (bytes(10_000), {400}),
    "an authorization beyond ASCII": (framed(LENGTH, "authorization: Bearer \xff\xfe"), {200}),
    "an upgrade to HTTP/2": (framed(LENGTH, "connection: Upgrade, HTTP2-Settings", "upgrade: h2c"), {200}),
    "an upgrade with chunks": (framed(CHUNKED, "connection: upgrade", "upgrade: h2c", content=chunked(CONTENT)), {200}),
    "an upgrade to WebSocket": (head("GET", "/health", {"connection": "upgrade", "upgrade": "websocket"}), {200}),
}  # fmt: skip
