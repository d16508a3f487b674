"""What --export writes, read by hand, by the engines' own clients, and by a server that load.sh talks to."""

import json
import random
import re
import shutil
import subprocess
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from uuid import NAMESPACE_URL, UUID, uuid5

import numpy as np
import pytest

from bert_jax.command.main import main
from bert_jax.search import engines
from bert_jax.search.documents import Document
from bert_jax.search.engines import ENGINES
from bert_jax.search.index import Index
from tests.support.indexes import INDEX_SETTINGS, change_index, file_contents, random_document

ODD = Document(
    'a\t"b"\\N\n/é#1',
    "tab\there \\. and \\\\t",
    'One\nline\r\nand \\N two.\n\\.\nAn "emoji" \N{CAT}\u200d\N{BLACK LARGE SQUARE}, \u2028 \x85 \x0b\x0c\x1f {} '
    + "more words " * 9,
)
NUL = Document("nul", "", "before\0after")
NAMES = ("document", "title", "text", "start", "end")


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Path:
    """Of three segments, with documents that were removed and replaced."""
    path = tmp_path_factory.mktemp("export") / "index"
    for step in range(3):
        change_index(
            path, [random_document(f"d{n}", random.Random(n + step)) for n in range(5 * step, 5 * step + 8)]
        )
    change_index(path, [ODD], remove=["d2", "d9"])
    return path


def export(index: Path, engine: str, folder: Path) -> int:
    return main(["index", "--output", str(index), "--export", engine, str(folder)])


def rows_of(path: Path) -> list[tuple]:
    """(id, payload, vector) of each passage, from the index itself."""
    documents: dict[str, list] = {}
    for segment in Index.open(path).segments:
        for row in range(len(segment.texts)):
            if segment.live is None or segment.live[row]:
                name, start = segment.document_place(row)
                payload = (
                    name,
                    segment.titles[segment.documents[row]],
                    segment.texts[row],
                    start,
                    segment.spans[row, 1],
                )
                documents.setdefault(name, []).append((payload, segment.vectors[row]))
    return [
        (uuid5(NAMESPACE_URL, f"{name}#{number}"), dict(zip(NAMES, payload, strict=True)), vector)
        for name, passages in sorted(documents.items())
        for number, (payload, vector) in enumerate(sorted(passages, key=lambda passage: passage[0][3]))
    ]


def files(folder: Path, pattern: str) -> list[str]:
    paths = sorted(folder.glob(pattern))
    assert paths
    return [path.read_bytes().decode() for path in paths]


def read_qdrant(folder: Path) -> list[tuple]:
    points = [point for content in files(folder, "points-*.json") for point in json.loads(content)["points"]]
    return [(UUID(point["id"]), point["payload"], point["vector"]) for point in points]


def read_bulk(folder: Path) -> list[tuple]:
    rows = []
    for content in files(folder, "bulk-*.ndjson"):
        *lines, end = content.split("\n")
        assert end == ""
        for action, source in zip(lines[::2], lines[1::2], strict=True):
            source = json.loads(source)
            vector = source.pop("embedding", [])
            rows.append((UUID(json.loads(action)["index"]["_id"]), source, vector))
    return rows


UNESCAPED = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r"}


def read_copy(folder: Path) -> list[tuple]:
    rows, content = [], (folder / "passages.tsv").read_bytes().decode()
    assert "\r" not in content  # which PostgreSQL refuses
    for line in content.removesuffix("\n").split("\n"):
        name, *cells, vector = line.split("\t")
        cells = [re.sub(r"\\(.)", lambda match: UNESCAPED[match[1]], cell) for cell in cells]
        payload = dict(zip(NAMES, [*cells[:3], *map(int, cells[3:])], strict=True))
        rows.append((UUID(name), payload, json.loads(vector)))
    return rows


READ = {"qdrant": read_qdrant, "opensearch": read_bulk, "elasticsearch": read_bulk, "pgvector": read_copy}


def assert_same(found: list[tuple], expected: list[tuple]) -> None:
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    assert np.array_equal(np.float32([row[2] for row in found]), [row[2] for row in expected])


@pytest.mark.parametrize("engine", ENGINES)
def test_an_export_is_the_index_however_it_came_about(engine, index, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(engines, "BATCH", 4000)
    before, expected = file_contents(index), rows_of(index)
    assert export(index, engine, tmp_path / "out") == 0 and file_contents(index) == before
    assert_same(READ[engine](tmp_path / "out"), expected)
    assert f"{len(expected)} passages of 17 documents in" in capsys.readouterr().err
    if engine != "pgvector":
        sizes = [path.stat().st_size for path in (tmp_path / "out").glob("*-*")]
        assert len(sizes) > 3 and max(sizes) <= 4000 + len('{"points":[\n\n]}\n')
    shutil.copytree(index, tmp_path / "merged")
    change_index(tmp_path / "merged", compact=True)
    whole = file_contents(tmp_path / "out")
    (tmp_path / "out" / sorted(whole)[0]).write_text("damaged")
    assert (
        export(tmp_path / "merged", engine, tmp_path / "out") == 0
        and file_contents(tmp_path / "out") == whole
    )


def test_keywords_alone_are_exported_where_an_engine_needs_no_vectors(tmp_path, capsys):
    settings = replace(INDEX_SETTINGS, model=None)
    change_index(tmp_path / "index", [ODD, NUL], settings=settings)
    for engine in ("opensearch", "elasticsearch"):
        assert export(tmp_path / "index", engine, tmp_path / engine) == 0
        assert_same(read_bulk(tmp_path / engine), rows_of(tmp_path / "index"))
        assert "embedding" not in (tmp_path / engine / "mapping.json").read_text()
    capsys.readouterr()
    for engine in ("qdrant", "pgvector"):
        assert export(tmp_path / "index", engine, tmp_path / engine) == 1
        assert "vectors" in capsys.readouterr().err and not (tmp_path / engine).exists()


def test_what_cannot_be_exported_is_refused_in_a_line(index, tmp_path, capsys):
    change_index(tmp_path / "nul", [ODD, NUL])
    change_index(tmp_path / "empty", [ODD])
    change_index(tmp_path / "empty", remove=[ODD.id])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").touch()
    capsys.readouterr()
    for name, engine, folder, message in (
        ("nul", "pgvector", "out", 'document "nul" has a NUL character'),
        ("empty", "qdrant", "out", "has no documents"),
        ("nul", "qdrnt", "out", 'no engine "qdrnt"; did you mean "qdrant"?'),
        ("nul", "qdrant", "mine", "holds files that this command does not write (letter.txt)"),
        ("nul", "qdrant", "nul/out", "is in the index"),
    ):
        assert export(tmp_path / name, engine, tmp_path / folder) == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert main(["index", "docs", "--output", str(index), "--export", "qdrant", str(tmp_path / "out")]) == 1
    assert "leave DOCS out" in capsys.readouterr().err
    assert not (tmp_path / "out").exists() and not (tmp_path / "nul/out").exists()


class Server(BaseHTTPRequestHandler):
    """Has no collection yet, and refuses the last file."""

    got: list[tuple[str, str, bytes]] = []
    log_message = lambda *_: None  # noqa: E731

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.got.append((self.command, self.path, body))
        refused = b"LAST" in body
        self.send_response(
            404 if self.command == "GET" else 400 if refused and "points" in self.path else 200
        )
        self.end_headers()
        self.wfile.write(b'{"errors":%s}' % (b'true,"items":[]' if refused else b"false"))

    do_GET = do_PUT = do_POST = answer


@pytest.mark.skipif(shutil.which("curl") is None, reason="load.sh needs curl")
@pytest.mark.parametrize("engine", ["qdrant", "opensearch"])
def test_load_sends_every_file_and_stops_where_one_is_refused(engine, index, tmp_path, monkeypatch):
    monkeypatch.setattr(engines, "BATCH", 12000)
    folder = tmp_path / "a folder"
    export(index, engine, folder)
    paths = sorted(folder.glob("*-*"))
    paths[1].write_bytes(b"LAST")
    Server.got.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/some/name"
        ran = subprocess.run(
            ["sh", folder / "load.sh", url, "--noproxy", "*"], capture_output=True, text=True
        )
        server.shutdown()
    assert ran.returncode != 0 and '{"errors":true' in ran.stdout
    if engine == "qdrant":
        settings, method, path = "collection.json", "PUT", "/some/name/points?wait=true"
    else:
        settings, method, path = "mapping.json", "POST", "/some/name/_bulk?filter_path=errors,items.*.error"
    assert Server.got == [
        ("GET", "/some/name", b""),
        ("PUT", "/some/name", (folder / settings).read_bytes()),
        (method, path, paths[0].read_bytes()),
        (method, path, b"LAST"),
    ]


def test_qdrants_client_takes_the_points(index, tmp_path):
    qdrant = pytest.importorskip("qdrant_client")
    export(index, "qdrant", tmp_path)
    points = [
        point
        for content in files(tmp_path, "points-*.json")
        for point in qdrant.models.PointsList.model_validate_json(content, strict=True).points
    ]
    expected = rows_of(index)
    assert_same([(point.id, point.payload, point.vector) for point in points], expected)
    client = qdrant.QdrantClient(":memory:")
    settings = qdrant.models.CreateCollection.model_validate_json((tmp_path / "collection.json").read_text())
    client.create_collection("passages", settings.vectors)
    client.upsert("passages", points)
    (best,) = client.query_points("passages", expected[5][2].tolist(), limit=1).points
    assert best.payload["text"] == expected[5][1]["text"] and best.score == pytest.approx(1)


@pytest.mark.parametrize(
    ("engine", "client", "serializer"),
    [("opensearch", "opensearchpy", "JSONSerializer"), ("elasticsearch", "elasticsearch", "JsonSerializer")],
)
def test_the_bulk_helpers_of_clients_make_the_same_lines(engine, client, serializer, index, tmp_path):
    helpers = pytest.importorskip(f"{client}.helpers.actions")
    serializer = getattr(pytest.importorskip(f"{client}.serializer"), serializer)()
    export(index, engine, tmp_path)
    lines = [line for content in files(tmp_path, "bulk-*.ndjson") for line in content.split("\n")[:-1]]
    theirs = []
    for name, payload, vector in rows_of(index):
        numbers = [float(f"{number:.9g}") for number in vector]
        row = {"_id": str(name), **payload, "end": int(payload["end"]), "embedding": numbers}
        theirs += map(serializer.dumps, helpers.expand_action(row))
    assert list(map(serializer.loads, lines)) == list(map(serializer.loads, theirs))


def test_psycopg_and_pgvector_read_the_rows(index, tmp_path):
    copy = pytest.importorskip("psycopg._copy_base")
    transformer = pytest.importorskip("psycopg.adapt").Transformer()
    pgvector = pytest.importorskip("pgvector")
    types = pytest.importorskip("psycopg.postgres").types
    transformer.set_loader_types(
        [types[name].oid for name in ("uuid", *["text"] * 3, *["int4"] * 2, "text")], 0
    )
    export(index, "pgvector", tmp_path)
    rows = []
    for line in (tmp_path / "passages.tsv").read_bytes().split(b"\n")[:-1]:
        name, *cells, vector = copy._parse_row_text(line + b"\n", transformer)
        rows.append((name, dict(zip(NAMES, cells, strict=True)), pgvector.Vector.from_text(vector).to_list()))
    assert_same(rows, rows_of(index))
