"""Odd files and odd models that verbs are given."""

import bz2
import gzip
import io
import json
import lzma
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import parquet
from safetensors.numpy import load_file, save_file

from bert_jax.command.main import main
from tests.hostile import material

WORD_TAGS = "w1\tO\nw2\tB-X\nw3\tI-X\n\nw4\tO\nw5\tB-X\n\n"
PASSAGE = "w1 w2 w3 w4 w5 w6"


def make(root: Path) -> Path:
    """What `material.make` makes, with models of each kind, tables to train them on, an index, odd files and models."""
    material.make(root)
    material.model(root / "tagger", root / "vocabulary", ("tag",), ("O", "B-X", "I-X"))
    material.model(root / "finder", root / "vocabulary", ("answer",))
    lines = [json.loads(line) for line in (root / "labelled.jsonl").read_text().splitlines()]
    (root / "words.conll").write_text(WORD_TAGS * 30)
    asked = [{"question": f"{row['text']}?", "context": PASSAGE, "answer": "w3 w4"} for row in lines]
    (root / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    main(
        [
            "index",
            str(root / "labelled.jsonl"),
            "--output",
            str(root / "index"),
            "--model",
            str(root / "masked"),
        ]
    )
    write_pairs(root, [row["text"] for row in lines])
    write_files(root / "odd")
    write_models(root)
    return root


def write_pairs(root: Path, lines: list[str]) -> None:
    """A reranker, and what embedders and rerankers learn from or are measured on."""
    material.model(root / "ranker", root / "vocabulary", ("classify",), ("LABEL_0",))
    material.model(root / "tokens", root / "vocabulary", multi_vector=material.TOKEN_VECTORS)
    halves = list(zip(lines[::2], lines[1::2], strict=True))
    tables = {
        "pairs.jsonl": [{"anchor": a, "positive": b} for a, b in halves],
        "ranked.jsonl": [{"query": a, "document": b, "label": n % 2} for n, (a, b) in enumerate(halves)],
        "judged/corpus.jsonl": [{"_id": f"d{n}", "text": b} for n, (_, b) in enumerate(halves)],
        "judged/queries.jsonl": [{"_id": f"q{n}", "text": a} for n, (a, _) in enumerate(halves)],
    }
    (root / "judged").mkdir()
    for name, rows in tables.items():
        (root / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    judgements = "".join(f"q{n}\td{n}\t1\n" for n in range(len(halves)))
    (root / "judged/qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + judgements)


def write_files(folder: Path) -> None:
    folder.mkdir()
    for name, content in contents().items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    (folder / "folder").mkdir()
    (folder / "unmounted").mkdir()
    (folder / "unmounted/a.jsonl").write_text('{"text": "w1", "label": "yes"}\n')
    (folder / "unmounted/b.jsonl").symlink_to(folder / "nowhere")
    (folder / "loop.txt").symlink_to(folder / "loop.txt")
    (folder / "gone.txt").symlink_to(folder / "nowhere")


@cache
def contents() -> dict[str, bytes | str]:
    text = "w1 w2 w3. w4 w5.\n\nw6 w7 w8.\n"
    rows = 'text,label\n"w1 w2",yes\nw3,no\n'
    wide = ",".join(f"column{n}" for n in range(100_000))
    table = pyarrow.table({"text": ["w1", "w2"], "label": ["yes", "no"]})
    odd = table.replace_schema_metadata({b"huggingface": b'{"info": {"features": {"text": [], "label": 7}}}'})
    squad = {"data": [{"paragraphs": [{"context": PASSAGE, "qas": [{"question": "w1?", "answers": 3}]}]}]}
    return {
        "empty.txt": "", "lines.txt": "\n" * 50, "bom.txt": b"\xef\xbb\xbf", "nul.txt": b"w1\0w2\n",
        "picture.txt": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)),
        "packed.txt": gzip.compress(text.encode()), "latin.txt": "café w1\n".encode("latin-1"),
        "utf16.txt": text.encode("utf-16"), "utf16-bare.txt": text.encode("utf-16-le"),
        "utf32.txt": text.encode("utf-32"), "cut.txt": "w1 €".encode()[:-1], "long.txt": "w1 " * 300_000,
        "word.txt": "w" * 6_000_000, "controls.txt": "\x1b[2J\x07\x08 w1\n\x0b\x0c\n", "old-mac.txt": "w1\rw2\rw3",
        "surrogates.txt": b"w1 \xed\xa0\x80 w2\n", "zero-width.txt": "\u200b\u200e\ufeff\n\u2028\n",
        "cut.txt.gz": gzip.compress(text.encode() * 999)[:-20], "not.txt.gz": b"no gzip", "not.txt.xz": b"no xz",
        "cut.txt.xz": lzma.compress(text.encode() * 999)[:-20], "not.txt.zst": b"no zstd",
        "not.txt.bz2": b"no bzip2", "cut.txt.bz2": bz2.compress(text.encode() * 999)[:-20],
        "flipped.txt.gz": flipped(gzip.compress(text.encode() * 999)), "empty.txt.gz": b"",
        "empty.csv": "", "header.csv": "text,label\n", "wide.csv": f"{wide}\n{wide}\n", "columns.csv": rows + "a,b,c\n",
        "quotes.csv": 'text,label\n"w1,yes\n', "twice.csv": "text,text\na,b\n", "nul.csv": rows + "a\0b,no\n",
        "blank.csv": "text,label\n,yes\nw1,\n", "one-class.csv": "text,label\nw1,yes\nw2,yes\n",
        "numbers.csv": "text,label\nw1,0.5\nw2,nan\n", "no-columns.csv": "a;b\n1;2\n",
        "sentences.tsv": "w1 w2 w3 w4 w5 w6\tyes\nw4 w5 w6 w7 w8 w9\tno\n", "bare.tsv": "w1\nw2\n",
        "ragged.conll": "w1 O\nw2 B X\n",
        "cut.jsonl": '{"text": "w1", "label": "yes"}\n{"text": ', "list.jsonl": "[1, 2]\n", "deep.jsonl": "[" * 100_000,
        "nan.jsonl": '{"text": "w1", "label": NaN}\n{"text": "w2", "label": Infinity}\n',
        "number.jsonl": '{"text": 3, "label": "yes"}\n', "null.jsonl": '{"text": null, "label": null}\n',
        "mixed.jsonl": '{"text": "w1", "label": 1}\n{"text": "w2", "label": "yes"}\n',
        "surrogate.jsonl": '{"text": "w1 \\ud800", "label": "yes"}\n{"text": "w2", "label": "no"}\n',
        "huge.jsonl": '{"text": "w1", "label": ' + "9" * 5000 + "}\n",
        "words.jsonl": '{"tokens": [1, 2], "tags": ["O", "O"]}\n',
        "short.jsonl": '{"tokens": ["w1", "w2"], "tags": ["O"]}\n', "object.json": '{"a": 1}', "text.json": '"w1"',
        "cut.json": '{"data": [', "squad.json": json.dumps(squad), "deep.json": '{"data":' * 50_000,
        "not.parquet": "PAR1 no parquet", "empty.parquet": b"", "rowless.parquet": packed(table.slice(0, 0)),
        "odd.parquet": packed(odd), "flipped.parquet": flipped(packed(table)), "table.xlsx": b"PK\x03\x04",
    }  # fmt: skip


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]


def packed(table: pyarrow.Table) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(table, sink)
    return sink.getvalue()


def write_models(root: Path) -> None:
    """Copies of models, each with something wrong: `NAME-nan` has a weight that is no number, and so on."""
    for name in ("masked", "classifier", "tagger", "finder", "ranker", "tokens"):
        tensors = load_file(root / name / "model.safetensors")
        first = next(key for key in sorted(tensors) if tensors[key].ndim == 2)
        for wrong, change in WEIGHTS.items():
            copy = root / f"{name}-{wrong}"
            shutil.copytree(root / name, copy)
            save_file(tensors | {first: change(tensors[first])}, copy / "model.safetensors")
    for name, temperatures in TEMPERATURES.items():
        copy = root / f"classifier-{name}"
        shutil.copytree(root / "classifier", copy)
        facts = {"kind": "classes", "labels": material.LABELS, "temperatures": temperatures, "levels": []}
        (copy / "calibration.json").write_text(json.dumps(facts))
    vocabulary = (root / "vocabulary" / "vocab.txt").read_text().splitlines()
    for name, entries in {
        "repeats": [*vocabulary, "w1", "w1"],
        "blanks": [*vocabulary, "", "", "w9999"],
        "nuls": [*vocabulary, "\0\0"],
        "specials": vocabulary[5:],
    }.items():
        (root / f"vocabulary-{name}").mkdir()
        (root / f"vocabulary-{name}" / "vocab.txt").write_text("\n".join(entries) + "\n")


def with_value(value: float):
    def change(array: np.ndarray) -> np.ndarray:
        array = array.copy()
        array[0, 0] = value
        return array

    return change


WEIGHTS = {
    "nan": with_value(np.nan),
    "infinite": with_value(-np.inf),
    "huge": lambda array: np.full_like(array, 3e38),
    "integers": lambda array: array.astype(np.int8),
    "truths": lambda array: array > 0,
    "double": lambda array: with_value(1e300)(array.astype(np.float64)),
}
TEMPERATURES = {
    "cold": [0.0],
    "negative": [-1.0],
    "no-number": [float("nan")],
    "three": [1.0, 1.0, 1.0],
    "text": ["1"],
}
