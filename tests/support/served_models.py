"""A small model of each kind, and a server of them in a process of its own."""

import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bert_jax.export.model_graph import make_model
from bert_jax.export.onnx_directory import save_onnx
from bert_jax.hub.onnx_files import ONNX_FILE
from bert_jax.hub.sentence_transformers import CROSS_ENCODER, EmbedderSettings
from bert_jax.search.documents import Document
from bert_jax.search.index_manifest import IndexManifest
from tests.support.indexes import change_index
from tests.support.processes import start_process
from tests.support.small_models import write_model

MODELS: dict[str, dict] = {
    "embedder": {"heads": (), "embedder": EmbedderSettings(prompts={"query": "the ", "document": "on "})},
    "reranker": {"heads": ("classify",), "labels": ("LABEL_0",), "hf_config": CROSS_ENCODER},
    "classifier": {"heads": ("classify",), "labels": ("bad", "good")},
    "tagger": {"heads": ("tag",), "labels": ("O", "B-X", "B-Y")},
    "answerer": {"heads": ("answer",)},
    "masked": {"heads": ("mlm",)},
}
DOCUMENTS = [Document("cats", "", "the cat sat on the mat ."), Document("mats", "", "mats .")]
KEYWORDS_ALONE = IndexManifest(None, passage_tokens=12, overlap=3)
SERVING = re.compile(r"^serving .* at (http://\S+)$")


def write_served_models(folder: Path) -> dict[str, Path]:
    """Write a model of each kind, for both engines, and an index; return their directories by name."""
    for name, facts in MODELS.items():
        layout, params = write_model(folder / name, **facts)
        file = folder / name / ONNX_FILE
        file.parent.mkdir()
        save_onnx(file, make_model(layout, params))
    change_index(folder / "index", DOCUMENTS, settings=KEYWORDS_ALONE)
    return {name: folder / name for name in (*MODELS, "index")}


@contextmanager
def serving(directories: Mapping[str, Path], *options: str, **variables: str) -> Iterator[str]:
    """Serve models, and give the address of the server; at the end, it is told to stop."""
    named = [f"{name}={path}" for name, path in directories.items()]
    words = [sys.executable, "-m", "bert_jax", "serve", *named, "--port", "0", *options]
    server = start_process(words, **variables)
    assert server.stdout
    said = ""
    try:
        for line in server.stdout:
            said += line
            if announced := SERVING.search(line):
                break
        else:
            raise AssertionError(f"the server does not start: {said[-3000:]}")
        yield announced[1]
    finally:
        server.send_signal(signal.SIGTERM)
        rest = server.communicate(timeout=60)[0]
    assert server.returncode == 0 and rest.rstrip().endswith("are answered"), rest
