"""What --export writes, read by hand, and loaded by the clients of search engines as the guide does it."""

import json
import random
import re
import shutil
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from uuid import NAMESPACE_URL, UUID, uuid5

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bert_jax.command.main import main
from bert_jax.search import parquet_export
from bert_jax.search.documents import Document
from bert_jax.search.index import Index
from bert_jax.search.index_manifest import SPARSE_ROWS
from bert_jax.search.sparse import unpack_row
from tests.support.indexes import INDEX_SETTINGS, change_index, file_contents, random_document
from tests.support.project import ROOT

ODD = Document(
    'a\t"b"\\N\n/é#1',
    "tab\there \\. and \\\\t",
    'One\nline\r\nand \\N two.\n\\.\nAn "emoji" \N{CAT}\u200d\N{BLACK LARGE SQUARE}, \u2028 \x85 \x0b\x0c\x1f {} '
    + "more words " * 9,
)
NUL = Document("nul", "", "before\0after")
NAMES = ("document", "title", "text", "start", "end")


# Of COPY's text format.
UNESCAPED = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r", "v": "\v", "f": "\f", "b": "\b"}


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Path:
    """Of three segments, with documents that were removed and replaced."""
    path = tmp_path_factory.mktemp("export") / "index"
    for step in range(0, 15, 5):
        change_index(path, [random_document(f"d{n}", random.Random(n + step)) for n in range(step, step + 8)])
    change_index(path, [ODD], remove=["d2", "d9"])
    return path


@pytest.fixture
def exported(index, tmp_path, monkeypatch) -> list[tuple]:
    """The rows of passages.parquet, which is in the current folder."""
    monkeypatch.chdir(tmp_path)
    assert export(index, Path("passages.parquet")) == 0
    return rows_of(index)


def export(index: Path, file: Path) -> int:
    return main(["index", "--output", str(index), "--export", str(file)])


def rows_of(path: Path) -> list[tuple]:
    """(id, payload, vector) of each passage, from the index itself."""
    documents: dict[str, list] = {}
    for segment in Index.open(path).segments:
        for row in range(len(segment.texts)):
            if segment.live is None or segment.live[row]:
                name, start = segment.document_position(row)
                payload = (
                    name,
                    segment.titles[segment.documents[row]],
                    segment.texts[row],
                    start,
                    segment.spans[row, 1],
                )
                tokens, weights = unpack_row(segment.rows[SPARSE_ROWS][row])
                rows = segment.vectors[row], dict(zip(tokens.tolist(), weights.tolist(), strict=True))
                documents.setdefault(name, []).append((payload, *rows))
    return [
        (uuid5(NAMESPACE_URL, f"{name}#{number}"), dict(zip(NAMES, payload, strict=True)), *rows)
        for name, passages in sorted(documents.items())
        for number, (payload, *rows) in enumerate(sorted(passages, key=lambda passage: passage[0][3]))
    ]


def read_rows(file: Path) -> list[tuple]:
    rows = pq.read_table(file).to_pylist()
    return [
        (
            UUID(row["id"]),
            {name: row[name] for name in NAMES},
            row.get("embedding", []),
            dict(zip(row["sparse_indices"], row["sparse_values"], strict=True)),
        )
        for row in rows
    ]


def assert_same(found: list[tuple], expected: list[tuple]) -> None:
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    assert np.array_equal(np.float32([row[2] for row in found]), [row[2] for row in expected])
    assert [row[3] for row in found] == [row[3] for row in expected]


def run_snippet(package: str, url: str = "") -> dict:
    """Run the guide's lines for a client, with the address of a server of the test; return what they define."""
    guide = (ROOT / "configs/guides/search.md").read_text(encoding="utf-8")
    (block,) = re.findall(rf'^```python\n(# pip install "?{re.escape(package)}.*?)^```$', guide, re.M | re.S)
    scope: dict = {}
    exec(compile(block.replace("http://localhost:9200", url), package, "exec"), scope)
    return scope


def test_an_export_is_the_index_however_it_came_about(index, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(parquet_export, "ROWS", 7)
    before, expected, file = file_contents(index), rows_of(index), tmp_path / "a.parquet"
    assert export(index, file) == 0 and file_contents(index) == before
    assert_same(read_rows(file), expected)
    assert f"{len(expected)} passages of 17 documents in" in capsys.readouterr().err
    assert pq.ParquetFile(file).num_row_groups == -(-len(expected) // 7)
    assert pq.read_schema(file).field("embedding").type == pa.list_(pa.float32(), len(expected[0][2]))
    shutil.copytree(index, tmp_path / "merged")
    change_index(tmp_path / "merged", compact=True)
    whole = file.read_bytes()
    file.write_bytes(b"damaged")
    assert export(tmp_path / "merged", file) == 0 and file.read_bytes() == whole


def test_keywords_alone_are_exported_without_vectors(tmp_path):
    change_index(tmp_path / "index", [ODD, NUL], settings=replace(INDEX_SETTINGS, model=None))
    assert export(tmp_path / "index", tmp_path / "a.parquet") == 0
    assert_same(read_rows(tmp_path / "a.parquet"), rows_of(tmp_path / "index"))
    assert "embedding" not in pq.read_schema(tmp_path / "a.parquet").names


def test_what_cannot_be_exported_is_refused_in_a_line(index, tmp_path, capsys):
    change_index(tmp_path / "empty", [ODD])
    change_index(tmp_path / "empty", remove=[ODD.id])
    (tmp_path / "folder.parquet").mkdir()
    capsys.readouterr()
    for source, file, message in (
        (tmp_path / "empty", "a.parquet", "has no documents"),
        (index, "a.csv", "a.csv does not end with .parquet"),
        (index, "folder.parquet", "folder.parquet"),
        (index, index / "a.parquet", "is in the index"),
        (tmp_path / "nowhere", "a.parquet", "nowhere"),
    ):
        assert export(source, tmp_path / file) == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert main(["index", "docs", "--output", str(index), "--export", str(tmp_path / "a.parquet")]) == 1
    assert "leave DOCS out" in capsys.readouterr().err
    assert not (tmp_path / "a.parquet").exists() and not (index / "a.parquet").exists()


def test_a_vector_that_is_not_finite_is_refused_and_nothing_is_left(index, tmp_path, monkeypatch):
    opened = Index.open(index)
    opened.segments[1].vectors = np.array(opened.segments[1].vectors)
    opened.segments[1].vectors[0, 1] = np.nan
    with pytest.raises(parquet_export.BertJaxError, match='a vector of document "d.*" is not finite'):
        parquet_export.export_parquet(opened, tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_qdrants_client_finds_what_it_loaded(exported, monkeypatch):
    qdrant = pytest.importorskip("qdrant_client")
    client = qdrant.QdrantClient(":memory:")
    monkeypatch.setattr(qdrant, "QdrantClient", {"http://localhost:6333": client}.__getitem__)
    run_snippet("qdrant-client")
    points, _ = client.scroll("passages", limit=1000, with_vectors=True)
    assert {point.id: point.payload for point in points} == {str(row[0]): row[1] for row in exported}
    (best,) = client.query_points("passages", exported[5][2].tolist(), limit=1).points
    assert best.payload["text"] == exported[5][1]["text"] and best.score == pytest.approx(1)
    wanted = exported[-1][3]
    query = qdrant.models.SparseVector(indices=[*wanted], values=[*wanted.values()])
    (best,) = client.query_points("passages", query, using="sparse", limit=1).points
    score = max(sum(weight * row[3].get(token, 0) for token, weight in wanted.items()) for row in exported)
    assert best.score == pytest.approx(score)


class Server(BaseHTTPRequestHandler):
    """Takes an index and its documents, as OpenSearch and Elasticsearch do."""

    created: list[tuple[str, dict]] = []
    rows: list[tuple] = []
    log_message = lambda *_: None  # noqa: E731

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        answer: dict = {"acknowledged": True}
        if self.path.split("?")[0].endswith("/_bulk"):
            lines = [json.loads(line) for line in body.split("\n")[:-1]]
            for action, source in zip(lines[::2], lines[1::2], strict=True):
                assert action["index"]["_index"] == "passages"
                vectors = source.pop("embedding"), source.pop("sparse")
                self.rows.append((UUID(action["index"]["_id"]), source, *vectors))
            items = [{"index": {"_id": "", "status": 201}} for _ in lines[::2]]
            answer = {"errors": False, "items": items}
        else:
            self.created.append((f"{self.command} {self.path}", json.loads(body)))
        self.send_response(200)
        self.send_header("X-Elastic-Product", "Elasticsearch")
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    do_PUT = do_POST = answer


@pytest.mark.parametrize(
    ("package", "module", "size", "kind"),
    [
        ("opensearch-py", "opensearchpy", "dimension", "rank_features"),
        ("elasticsearch", "elasticsearch", "dims", "sparse_vector"),
    ],
)
def test_the_clients_of_opensearch_and_elasticsearch_send_every_row(package, module, size, kind, exported):
    pytest.importorskip(module)
    Server.created.clear()
    Server.rows.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        run_snippet(package, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    ((request, body),) = Server.created
    assert request == "PUT /passages"
    assert body["mappings"]["properties"]["embedding"][size] == len(exported[0][2])
    assert body["mappings"]["properties"]["sparse"]["type"] == kind
    of_strings = [
        (*row, {str(token): weight for token, weight in sparse.items()}) for *row, sparse in exported
    ]
    assert_same(Server.rows, of_strings)


class Database:
    """Stands in for a connection to PostgreSQL and its cursor. Rows are written by psycopg's own formatter."""

    def __init__(self, formatter):
        self.formatter, self.statements, self.content = formatter, [], b""
        self.execute = self.statements.append

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def cursor(self):
        return self

    def copy(self, statement: str):
        self.execute(statement)
        return self

    def write_row(self, row) -> None:
        self.content += self.formatter.write_row(row)


def test_psycopg_writes_every_row(exported, monkeypatch):
    psycopg = pytest.importorskip("psycopg")
    formatter = psycopg._copy_base.TextFormatter(psycopg.adapt.Transformer())
    database = Database(formatter)
    monkeypatch.setattr(psycopg, "connect", {"dbname=passages": database}.__getitem__)
    run_snippet("psycopg")
    found = []
    content = (database.content + formatter.end()).decode().removesuffix("\\.\n").removesuffix("\n")
    for line in content.split("\n"):
        cells = [re.sub(r"\\(.)", lambda match: UNESCAPED[match[1]], cell) for cell in line.split("\t")]
        name, *texts, start, end, vector = cells
        values = dict(zip(NAMES, [*texts, int(start), int(end)], strict=True))
        found.append((UUID(name), values, json.loads(vector)))
    assert_same([(*row, sparse) for row, (*_, sparse) in zip(found, exported, strict=True)], exported)
    assert f"vector({len(exported[0][2])})" in database.statements[1]


@pytest.mark.long
def test_lancedb_takes_the_file(exported):
    pytest.importorskip("lancedb")
    table = run_snippet("lancedb")["table"]
    (best,) = table.search(exported[5][2].tolist()).limit(1).to_list()
    assert table.count_rows() == len(exported) and best["text"] == exported[5][1]["text"]
