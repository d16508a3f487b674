"""Small things that commands are tried on: text, a vocabulary, a corpus, models, tables, and a run."""

import json
import random
from pathlib import Path

import numpy as np
from flax.traverse_util import unflatten_dict

import bert_jax
from bert_jax.export.onnx_directory import export_onnx
from bert_jax.hub import model_directory as hub
from bert_jax.hub.families import FAMILIES
from bert_jax.hub.layout import Layout
from bert_jax.hub.m3_encoder import make_settings
from bert_jax.hub.multi_vector_encoder import MultiVectorSettings, QueryExpansion, TokenPooling
from bert_jax.hub.sentence_transformers import EmbedderSettings, Projection
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.text.tokenizer_directory import open_tokenizer
from tests.support.adapters import write_adapter
from tests.support.made_up_language import WORDS
from tests.support.pretraining_runs import make_corpus, train_command
from tests.support.processes import run_process

LABELS = ("no", "yes")
# The class that opens each, and those that say which class does.
CLASSES = {
    "tag": bert_jax.Tagger, "answer": bert_jax.QuestionAnswerer, "classify": bert_jax.Classifier,
    "labels": bert_jax.Classifier, "number": bert_jax.Classifier, "rank": bert_jax.Reranker,
    "embed": bert_jax.Embedder, "static": bert_jax.StaticEmbedder, "plain": bert_jax.Encoder, "mlm": bert_jax.MaskedLM,
    "sparse": bert_jax.SparseEmbedder, "tokens": bert_jax.MultiVectorEmbedder, "m3": bert_jax.M3Embedder,
}  # fmt: skip
TOKEN_VECTORS = MultiVectorSettings(
    prompts={"query": "w1 "}, projection=Projection(16), expansion=QueryExpansion(12), pooling=TokenPooling()
)
M3 = make_settings(EmbedderSettings(pooling="cls"), 16)
OPENS_TOO = {
    ("number", bert_jax.Reranker),
    ("rank", bert_jax.Classifier),
}  # one score, of a text or of a pair


def make(root: Path) -> Path:
    """text.txt, vocabulary/, corpus/, masked/, classifier/ and exported/ (models), lines.txt and labelled.jsonl."""
    root.mkdir(parents=True, exist_ok=True)
    make_corpus(root)
    model(root / "masked", root / "vocabulary", ("mlm", "nsp"))
    model(root / "classifier", root / "vocabulary", ("classify",), LABELS)
    export_onnx(root / "classifier", root / "exported")
    write_adapter(root / "adapter", root / "masked", "classify", LABELS, rank=2)
    lines = sentences(60)
    (root / "lines.txt").write_text("\n".join(lines) + "\n")
    rows = [{"id": i, "text": line, "label": LABELS[i % 2]} for i, line in enumerate(lines)]
    (root / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


def sentences(count: int) -> list[str]:
    drawn = random.Random(1)
    return [" ".join(drawn.choices(WORDS, k=drawn.randint(3, 12))) for _ in range(count)]


def model(directory: Path, vocabulary: Path, heads=(), labels=(), family: str = "bert", **more) -> Path:
    """A model directory of two layers of width 32, with weights that mean nothing."""
    tokenizer = open_tokenizer(vocabulary)
    config = EncoderConfig(
        vocab_size=tokenizer.size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
    )
    layout, drawn = Layout(config, FAMILIES[family], heads, labels, **more), np.random.default_rng(0)
    flat = {
        name: (drawn.normal(size=shape) / 4).astype(np.float32) for name, shape in layout.shapes().items()
    }
    hub.save_model(directory, layout, unflatten_dict(flat, sep="/"), tokenizer)
    return directory


def run(root: Path, workdir: Path) -> Path:
    """A finished run of eight steps, with its checkpoints."""
    settings = {"steps": 8, "checkpoints.every": 4, "log.evaluate_every": 4, "optimizer.warmup_steps": 2}
    run_process(train_command(root / "corpus", workdir, **settings))
    return workdir
