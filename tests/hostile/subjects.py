"""Kinds of files that are mutated: how each is made and read, and what its content means, computed independently."""

import contextlib
import csv
import gzip
import io
import json
import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pyarrow
import pytest
import tokenizers
import zstandard
from pyarrow import parquet
from safetensors.numpy import load_file

from bert_jax.command.info import describe_index, document_ids
from bert_jax.core import hashes
from bert_jax.data.corpus.corpus_directory import Corpus
from bert_jax.data.corpus.full_sentences import Rows
from bert_jax.data.corpus.segment_plan import load_or_build
from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.hub import sentence_transformers, sparse_encoder
from bert_jax.hub.m3_encoder import open_linear_layers
from bert_jax.hub.model_directory import ModelDirectory
from bert_jax.hub.multi_vector_encoder import (
    STANFORD,
    STANFORD_FILE,
    read_multi_vector,
    write_multi_vector,
)
from bert_jax.hub.tensors import Tensors
from bert_jax.hub.torch_pickle import write_torch_tensors
from bert_jax.inference.load import load
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.predictions import calibration, out_of_scope, training_origin
from bert_jax.predictions.selective import CoverageLevel, LabelLevels
from bert_jax.text import tables
from bert_jax.text.text_source import TextSource
from bert_jax.text.tokenizer_directory import open_tokenizer
from bert_jax.training.checkpoint import find_damage, read_checkpoint_manifest, write_checkpoint_manifest
from bert_jax.training.workdir import Workdir
from tests.hostile.material import TOKEN_VECTORS
from tests.support.indexes import change_index, open_with_encoders, random_document
from tests.support.tiny_pretraining import Batches, tiny_pretraining

LABELS = ("no", "yes")
TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}


@dataclass(frozen=True)
class Subject:
    name: str
    file: str  # that is mutated, within the folder
    prepared: Callable[[Path, Path], Path]  # a folder of its own, from the small material
    read: Callable[[Path], object]  # the folder -> a value
    means: Callable[[bytes, bytes, object], bool]  # original, mutation, value -> whether it says so
    share: float = 1.0  # of all mutations
    hashed: bool = False  # every change is refused


# Folders.


def copied(name: str, change: Callable[[Path], None] = lambda folder: None) -> Callable[[Path, Path], Path]:
    def prepare(source: Path, work: Path) -> Path:
        folder = work / "folder"
        shutil.copytree(source / name, folder)
        change(folder)
        return folder

    return prepare


def written(name: str, content: Callable[[list[dict]], bytes]) -> Callable[[Path, Path], Path]:
    """A folder with a file made of the labelled rows."""

    def prepare(source: Path, work: Path) -> Path:
        folder = work / "folder"
        folder.mkdir()
        rows = [json.loads(line) for line in (source / "labelled.jsonl").read_text().splitlines()]
        (folder / name).write_bytes(content(rows[:20]))
        return folder

    return prepare


def without(*names: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return remove


def with_torch(zipped: bool) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        torch = pytest.importorskip("torch")
        tensors = {name: torch.from_numpy(array) for name, array in some(folder).items()}
        torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
        (folder / "model.safetensors").unlink()

    return change


def some(folder: Path) -> dict[str, np.ndarray]:
    """A few small tensors, so that mutations meet the names and not the numbers alone."""
    tensors = load_file(folder / "model.safetensors")
    return {name: array for name, array in tensors.items() if array.size <= 64}


def with_few_tensors(folder: Path) -> None:
    from safetensors.numpy import save_file

    save_file(some(folder), folder / "model.safetensors", metadata={"format": "pt"})


def with_calibration(folder: Path) -> None:
    levels = tuple(CoverageLevel(0.5 + i / 40, 100 - i, 90 - i) for i in range(3))
    by_label = (LabelLevels(LABELS[0], 90, levels, (0.9, 0.8, 0.7)),)
    given = calibration.Calibration("classes", LABELS, (1.5,), levels=levels, by_label=by_label, examples=200)
    calibration.save_calibration(folder, given)


def with_origin(folder: Path) -> None:
    columns = ExampleColumns("review", label="stars", label_separator=";")
    training_origin.save_origin(
        folder, training_origin.TrainingOrigin("bert-jax train", 200, {"train": "1f"}, columns)
    )


def with_scope(folder: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float16)
    out_of_scope.save_detector(
        folder, out_of_scope.OutOfScopeDetector.from_vectors(vectors, np.linspace(0.1, 0.5, 5))
    )


def with_modules(folder: Path) -> None:
    sentence_transformers.write_embedder(
        folder, sentence_transformers.EmbedderSettings(prompts={"query": "q: "}), 32
    )


def with_sparse_modules(folder: Path) -> None:
    sparse_encoder.write_sparse(folder, sparse_encoder.SparseSettings(query_weights=True), 40, None)


def with_multi_vector_modules(folder: Path) -> None:
    write_multi_vector(folder, replace(TOKEN_VECTORS, skiplist=(".", "w1")), 32)


def with_stanford_file(folder: Path) -> None:
    given = {"query_maxlen": 9, "doc_maxlen": 10, "mask_punctuation": False, "query_token_id": "[unused1]"}
    (folder / STANFORD_FILE).write_text(json.dumps(given))


def with_plan(folder: Path) -> None:
    plan_of(folder)
    for path in (folder / "plans" / "train").iterdir():
        path.rename(path.with_name("plan" + path.suffix))


def checkpoint(source: Path, work: Path) -> Path:
    folder = work / "folder"
    (folder / "d").mkdir(parents=True)
    (folder / "_METADATA").write_text('{"a": 1}')
    (folder / "d" / "0").write_bytes(np.random.default_rng(0).bytes(3000))
    write_checkpoint_manifest(folder, {"step": 10, "validation": {"loss": 1.25}, "window": {"steps": 0}})
    return folder


def saved(source: Path, work: Path) -> Path:
    """As `import` and `export` leave it, with its hashes."""
    load(source / "classifier").save(work / "folder")
    return work / "folder"


def run(source: Path, work: Path) -> Path:
    task, config = tiny_pretraining()
    workdir = Workdir(work / "folder")
    workdir.path.mkdir()
    workdir.record_or_check(config, Batches(), task.layouts)
    return workdir.path


def index(source: Path, work: Path) -> Path:
    """Six documents, of which two were removed."""
    made = source / "six documents"
    if not made.exists():
        change_index(made, [random_document(f"d{n}", random.Random(n)) for n in range(6)])
        change_index(made, remove=["d1", "d4"])
    return copied(made.name)(source, work)


# How they are read.


def tensors_of(folder: Path) -> dict[str, np.ndarray]:
    tensors = Tensors.from_directory(folder)
    return {name: np.asarray(tensors[name]) for name in tensors}


def corpus_of(folder: Path) -> list[np.ndarray]:
    corpus = Corpus(folder)
    corpus.tokenizer.ids(["w1"])
    return [
        part for of in (corpus.train, corpus.validation) for part in (of.tokens, of.sentences, of.documents)
    ]


def plan_of(folder: Path) -> np.ndarray:
    return np.array(load_or_build(Corpus(folder).train, Rows(2), 0, 32, 0).table)


def mutated_plan(folder: Path) -> bool:
    """Whether the plan is the same when the mutated file stands where the cache is looked for."""
    plans = folder / "plans" / "train"
    kept = {path.suffix: path.read_bytes() for path in plans.glob("plan.*")}
    made = [path for path in plans.iterdir() if path.stem != "plan"]
    for path in made:
        path.unlink()
    expected = plan_of(folder)
    for path in plans.iterdir():
        if path.stem != "plan":
            path.write_bytes(kept[path.suffix])
    return np.array_equal(plan_of(folder), expected)


def checkpoint_of(folder: Path) -> dict:
    from bert_jax.core.errors import BertJaxError

    if wrong := find_damage(folder):
        raise BertJaxError(wrong)
    return read_checkpoint_manifest(folder)["position"]


def run_of(folder: Path):
    workdir = Workdir(folder)
    return workdir.read_run(), workdir.layouts()[""]


def layout_of(folder: Path):
    return (ModelDirectory.open(folder).layout,)


def rows_of(name: str) -> Callable[[Path], list[dict]]:
    return lambda folder: [row for _, row in tables.read_table_rows(str(folder / name))]


def documents_of(folder: Path) -> list[str]:
    return list(TextSource([folder / "text.txt"], "sentences", strict=True).documents())


def entries_of(folder: Path) -> list[str]:
    tokenizer = open_tokenizer(folder)
    return tokenizer.tokens(range(tokenizer.size))


def calibration_of(folder: Path) -> calibration.Calibration:
    return calibration.read_calibration(folder, LABELS)


def scope_of(folder: Path) -> dict[str, np.ndarray]:
    found = out_of_scope.read_detector(folder, 4)
    return {"vectors": found.vectors, "known": found.known}


def checked(folder: Path) -> str:
    from bert_jax.runs.integrity import check_directory

    return check_directory(folder)


def index_of(folder: Path) -> list[str]:
    """The ids of an index, after all was asked of it."""
    opened = open_with_encoders(folder)
    opened.search(["w1 w2 w3", "w9 w20"], 20)
    describe_index(opened, str(folder), as_json=False)
    return list(document_ids(opened))


def forged_index_of(name: str) -> Callable[[Path], list[str]]:
    """An index of a stranger, who gives hashes that are right."""

    def read(folder: Path) -> list[str]:
        path = folder / "index.json"
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            content = json.loads(path.read_text())
            content.pop("self", None)
            (segment,) = content.get("segments") or [{}]
            file = name.split("/")[-1]
            if name != "index.json":
                facts = hashes.collect_file_facts(folder, [name])[name]
                of = segment["files"] if file in segment["files"] else segment["removed"]
                of["facts" if of is segment["removed"] else file] = facts
            path.write_text(json.dumps(hashes.seal(content)))
        return index_of(folder)

    return read


# What they mean.


def same_json(original: bytes, content: bytes, value) -> bool:
    """Only spaces, or the order of keys, may differ from what was hashed."""
    try:
        return json.loads(original) == json.loads(content)
    except ValueError:
        return False


def never(original: bytes, content: bytes, value) -> bool:
    return False


def anything(original: bytes, content: bytes, value) -> bool:
    """It is enough that it is read without a traceback; tests of what it means stand beside its reader."""
    return True


def ids_are_listed(original: bytes, content: bytes, value) -> bool:
    """Segments that are not named are not searched, and documents that are not listed as removed are there."""
    segments = json.loads(content).get("segments", [])
    gone = ("d1", "d4") if segments and segments[0].get("removed") else ()
    return value == [f"d{n}" for n in range(6) if f"d{n}" not in gone] * bool(segments)


def always_made_anew(original: bytes, content: bytes, value) -> bool:
    return value


def equal_arrays(expected: dict[str, np.ndarray], value: dict[str, np.ndarray]) -> bool:
    return expected.keys() == value.keys() and all(
        a.dtype == value[name].dtype and a.shape == value[name].shape and a.tobytes() == value[name].tobytes()
        for name, a in expected.items()
    )


def safetensors_say(original: bytes, content: bytes, value) -> bool:
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)
    expected = {}
    for name, facts in header.items():
        begin, end = facts["data_offsets"]
        raw = np.frombuffer(content[8 + size + begin : 8 + size + end], np.uint8)
        expected[name] = raw.view(TYPES[facts["dtype"]]).reshape(facts["shape"])
    return equal_arrays(expected, value)


def torch_says(original: bytes, content: bytes, value) -> bool:
    import torch

    try:
        loaded = torch.load(io.BytesIO(content), weights_only=True)
    except RuntimeError:  # of a zip whose headers are damaged, and no checksum says so of the rest
        loaded = torch.load(io.BytesIO(original), weights_only=True)
    if isinstance(loaded.get("state_dict"), dict):
        loaded = loaded["state_dict"]
    return equal_arrays({name: tensor.numpy() for name, tensor in loaded.items()}, value)


# Key of a BERT -> what its absence means.
PUBLISHED = {
    "num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072,
    "max_position_embeddings": 512, "type_vocab_size": 2, "vocab_size": 30522, "layer_norm_eps": 1e-12,
    "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02,
    "tie_word_embeddings": True,
}  # fmt: skip
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
}


def config_says(original: bytes, content: bytes, value) -> bool:
    layout, published = value[0], json.loads(content)
    if (published.get("model_type") or "bert") != layout.family.model_type:
        return False
    if layout.family.model_type != "bert":
        return True  # another family's keys; tests/hub/families/test_reference.py has them
    expected = {
        key: default if published.get(key) is None else published[key] for key, default in PUBLISHED.items()
    }
    act = published.get("hidden_act")
    expected["hidden_act"] = ACTIVATIONS["gelu" if act is None else act]
    labels = published.get("id2label")
    if layout.labels and labels is not None:
        expected_labels = tuple(str(labels[str(i)]) for i in range(len(labels)))
        if layout.labels != expected_labels:
            return False
    actual = {name: getattr(layout.config, name) for name in expected}
    flags = ([type(value) is bool for value in values.values()] for values in (actual, expected))
    return actual == expected and next(flags) == next(flags)


def vocabulary_says(original: bytes, content: bytes, value) -> bool:
    lines = [line.rstrip() for line in content.decode().split("\n")]
    # The last of several equal lines has the entry; lines after the last entry have none.
    expected = {line: i for i, line in enumerate(lines) if line}
    return all(value[i] == line for line, i in expected.items()) and len(value) == max(expected.values()) + 1


def tokenizer_says(original: bytes, content: bytes, value) -> bool:
    rust = tokenizers.Tokenizer.from_str(content.decode())
    rust.no_padding()
    rust.no_truncation()
    text = "w1 w20y3 W799y1y2 unknown, [MASK]"
    before = [token.content for token in rust.get_added_tokens_decoder().values() if token.special]
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    rust.add_special_tokens(
        [name for name in names if name not in before and rust.token_to_id(name) is not None]
    )
    return value.ids([text])[0] == rust.encode(text, add_special_tokens=False).ids


def calibration_says(original: bytes, content: bytes, value) -> bool:
    default, given = (json.loads(json.dumps(asdict(calibration.UNCALIBRATED))), json.loads(content))
    if tuple(given.get("labels", ())) not in ((), LABELS):
        given = {}  # of another model's labels, and left out
    sound = all(temperature > 0 for temperature in given.get("temperatures", []))
    return sound and json.loads(json.dumps(asdict(value))) == default | given


def origin_says(original: bytes, content: bytes, value) -> bool:
    default, given = asdict(training_origin.UNKNOWN_ORIGIN), json.loads(content)
    columns = default["columns"] | given.get("columns", {})
    return asdict(value) == default | given | {"columns": columns}


def run_says(original: bytes, content: bytes, value) -> bool:
    given, layout = value
    expected = json.loads(content)
    if "self" in expected and expected != json.loads(original):
        return False
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "hidden_dropout_prob")
    default, config = asdict(EncoderConfig()), expected["layout"]["config"]
    return (
        given == expected
        and list(layout.heads) == expected["layout"]["heads"]
        and all(getattr(layout.config, name) == config.get(name, default[name]) for name in sizes)
    )


def lines_say(decompress: Callable[[bytes], bytes]):
    def means(original: bytes, content: bytes, value) -> bool:
        text = decompress(content).decode("utf-8-sig")
        return [json.loads(line) for line in text.split("\n") if line.strip()] == value

    return means


def cells_say(delimiter: str):
    def means(original: bytes, content: bytes, value) -> bool:
        text = content.decode("utf-8-sig")
        if delimiter == ",":
            first = text.split("\n")[0]
            use = "\t" if "\t" in first else ";" if first.count(";") > first.count(",") else ","
        else:
            use = delimiter
        if use == "\t":
            lines = [line.rstrip("\r") for line in text.split("\n")]
            cells = [line.split("\t") for line in lines if line]
        else:
            cells = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=use) if row]
        header, *rows = cells or [[]]
        return [dict(zip(header, row, strict=True)) for row in rows] == value

    return means


def parquet_says(original: bytes, content: bytes, value) -> bool:
    return parquet.read_table(io.BytesIO(content)).to_pylist() == value


def text_says(original: bytes, content: bytes, value) -> bool:
    return "".join("".join(value).split()) == "".join(
        content.decode().replace("\n\ufeff", "\n").removeprefix("\ufeff").split()
    )


# Tables.


def as_lines(rows: list[dict]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_text(rows: list[dict]) -> bytes:
    return "\n".join(row["text"] for row in rows).encode()


def as_csv(rows: list[dict]) -> bytes:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def as_tsv(rows: list[dict]) -> bytes:
    return "".join(
        "\t".join(map(str, row)) + "\n" for row in [list(rows[0]), *(r.values() for r in rows)]
    ).encode()


def as_parquet(rows: list[dict]) -> bytes:
    features = {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}, "text": {"_type": "Value"}}
    table = pyarrow.Table.from_pylist(rows)
    file = io.BytesIO()
    given = {"huggingface": json.dumps({"info": {"features": features | {"label": {"_type": "Value"}}}})}
    parquet.write_table(table.replace_schema_metadata(given), file)
    return file.getvalue()


def compressed(compress: Callable[[bytes], bytes]) -> Callable[[list[dict]], bytes]:
    return lambda rows: compress(as_lines(rows))


def table(name: str, content, means, share=1.0) -> Subject:
    return Subject(name, name, written(name, content), rows_of(name), means, share)


def unzstd(content: bytes) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True).read()


def corpus(name: str, file: str, means=never, share=1.0) -> Subject:
    return Subject(name, file, copied("corpus"), corpus_of, means, share, means is never)


def torch_file(name: str, zipped: bool) -> Subject:
    folder = copied("masked", with_torch(zipped))
    return Subject(name, "pytorch_model.bin", folder, tensors_of, torch_says, 3)


def plan(name: str, suffix: str) -> Subject:
    folder = copied("corpus", with_plan)
    return Subject(name, f"plans/train/plan{suffix}", folder, mutated_plan, always_made_anew, 0.3)


def embedder(file: str) -> Subject:
    return Subject(file, file, copied("masked", with_modules), sentence_transformers.read_embedder, anything)


def sparse(file: str) -> Subject:
    return Subject(file, file, copied("masked", with_sparse_modules), sparse_encoder.read_sparse, anything)


def multi_vector(file: str) -> Subject:
    folder = copied("masked", with_multi_vector_modules)
    return Subject(f"multi-vector {file}", file, folder, lambda path: read_multi_vector(path, {}), anything)


def with_m3_layers(folder: Path) -> None:
    pytest.importorskip("torch")  # `torch_says` reads what is accepted
    random = np.random.default_rng(0)
    for name, width in (("colbert_linear", 6), ("sparse_linear", 1)):
        shapes = {"weight": (width, 32), "bias": (width,)}
        tensors = {key: random.normal(size=shape) for key, shape in shapes.items()}
        write_torch_tensors(folder / f"{name}.pt", tensors)


def m3_layer_of(folder: Path) -> dict[str, np.ndarray]:
    layers = open_linear_layers(folder, 32)
    return {name: np.asarray(layers[f"colbert_linear.{name}"]) for name in ("weight", "bias")}


def vocabulary(file: str, means, read=open_tokenizer, change=lambda folder: None) -> Subject:
    return Subject(file, file, copied("vocabulary", change), read, means, 2)


def index_file(name: str, share: float = 0.3) -> Subject:
    return Subject(f"index: {name}", name, index, index_of, never, share, hashed=True)


def forged_index_file(name: str) -> Subject:
    """What numbers say cannot be known; they are read without a traceback."""
    return Subject(f"forged index: {name}", name, index, forged_index_of(name), anything, 0.3)


ALL = (
    corpus("corpus manifest", "manifest.json", same_json, 4),
    corpus("corpus tokens", "train/tokens.npy"),
    corpus("corpus documents", "validation/documents.npy"),
    corpus("corpus tokenizer", "tokenizer/tokenizer.json"),
    Subject("stamp of hashes", "plans/verified.json", copied("corpus", corpus_of), corpus_of, anything),
    plan("plan", ".npy"),
    plan("facts of a plan", ".json"),
    Subject("checkpoint manifest", "manifest.json", checkpoint, checkpoint_of, same_json, 4),
    Subject("checkpoint array", "d/0", checkpoint, checkpoint_of, never, hashed=True),
    Subject("saved config", "config.json", saved, checked, never, hashed=True),
    Subject("hashes.json", "hashes.json", saved, checked, same_json, 2),
    Subject("run.json", "run.json", run, run_of, run_says, 4),
    Subject("config.json", "config.json", copied("classifier"), layout_of, config_says, 6),
    Subject("safetensors", "model.safetensors", copied("masked", with_few_tensors), tensors_of, safetensors_say, 4),
    torch_file("pytorch_model.bin, zip", True),
    torch_file("pytorch_model.bin, stream", False),
    Subject("colbert_linear.pt", "colbert_linear.pt", copied("masked", with_m3_layers), m3_layer_of, torch_says, 2),
    vocabulary("vocab.txt", vocabulary_says, entries_of, without("tokenizer.json")),
    vocabulary("tokenizer.json", tokenizer_says),
    vocabulary("tokenizer_config.json", anything),
    vocabulary("special_tokens_map.json", anything),
    Subject("calibration.json", "calibration.json", copied("classifier", with_calibration), calibration_of,
            calibration_says, 4),
    Subject("origin.json", "origin.json", copied("classifier", with_origin),
            training_origin.read_origin, origin_says, 2),
    Subject("scope.safetensors", "scope.safetensors", copied("classifier", with_scope), scope_of, safetensors_say, 2),
    Subject("index.json", "index.json", index, index_of, same_json, 2),
    Subject("forged index.json", "index.json", index, forged_index_of("index.json"), ids_are_listed, 6),
    *map(index_file, ("removed/000001-000002.npy", "segments/000001/ids.npy", "segments/000001/vectors.npy")),
    *map(forged_index_file, ("removed/000001-000002.npy", *(f"segments/000001/{name}.npy" for name in (
        "ids", "texts.starts", "documents", "vectors", "words", "postings.starts", "postings", "frequencies",
    )))),
    embedder("modules.json"),
    embedder("config_sentence_transformers.json"),
    embedder("1_Pooling/config.json"),
    sparse("router_config.json"),
    sparse("1_SpladePooling/config.json"),
    *map(multi_vector, (
        "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json", "1_Dense/config.json",
        "2_MultiVectorMask/config.json", "4_HierarchicalTokenPooling/config.json",
    )),
    Subject(STANFORD_FILE, STANFORD_FILE, copied("masked", with_stanford_file),
            lambda folder: read_multi_vector(folder, {"architectures": [STANFORD]}), anything),
    table("rows.csv", as_csv, cells_say(","), 2),
    table("rows.tsv", as_tsv, cells_say("\t"), 2),
    table("rows.jsonl", as_lines, lines_say(bytes), 3),
    table("rows.jsonl.gz", compressed(gzip.compress), lines_say(gzip.decompress)),
    table("rows.jsonl.zst", compressed(zstandard.compress), lines_say(unzstd)),
    table("rows.parquet", as_parquet, parquet_says, 2),
    Subject("text.txt", "text.txt", written("text.txt", as_text), documents_of, text_says, 2),
)  # fmt: skip
