"""A small model of each kind that a server answers for."""

from pathlib import Path

from bert_jax.export.model_graph import make_model
from bert_jax.export.onnx_directory import save_onnx
from bert_jax.hub.multi_vector_encoder import MultiVectorSettings, QueryExpansion
from bert_jax.hub.onnx_files import ONNX_FILE
from bert_jax.hub.sentence_transformers import CROSS_ENCODER, EmbedderSettings, Projection
from bert_jax.hub.sparse_encoder import SparseSettings
from bert_jax.predictions.calibration import Calibration, save_calibration
from bert_jax.predictions.selective import CoverageLevel
from bert_jax.search.documents import Document
from bert_jax.search.index_manifest import IndexManifest
from tests.support.indexes import change_index
from tests.support.small_models import write_model

TOKEN_VECTORS = MultiVectorSettings(
    prompts={"query": "the "}, projection=Projection(6), expansion=QueryExpansion(10), skiplist=(".",)
)
MODELS: dict[str, dict] = {
    "embedder": {"heads": (), "embedder": EmbedderSettings(prompts={"query": "the ", "document": "on "})},
    "sparse": {"heads": ("mlm",), "pooler": False, "sparse": SparseSettings(prompts={"query": "the "})},
    "multi-vector": {"heads": (), "pooler": False, "multi_vector": TOKEN_VECTORS},
    "reranker": {"heads": ("classify",), "labels": ("LABEL_0",), "hf_config": CROSS_ENCODER},
    "classifier": {"heads": ("classify",), "labels": ("bad", "good")},
    "tagger": {"heads": ("tag",), "labels": ("O", "B-X", "B-Y")},
    "answerer": {"heads": ("answer",)},
    "masked": {"heads": ("mlm",)},
}
# It changes no probability; 60 predictions, all of them right, show a precision of .951.
CALIBRATION = Calibration("classes", ("bad", "good"), levels=(CoverageLevel(0.5, 60, 60),), examples=60)
DOCUMENTS = [Document("cats", "", "the cat sat on the mat ."), Document("mats", "", "mats .")]
KEYWORDS_ALONE = IndexManifest(None, passage_tokens=12, overlap=3)


def write_served_models(folder: Path) -> dict[str, Path]:
    """Write a model of each kind, for both engines, and an index; return their directories by name."""
    for name, facts in MODELS.items():
        layout, params = write_model(folder / name, **facts)
        file = folder / name / ONNX_FILE
        file.parent.mkdir()
        save_onnx(file, make_model(layout, params))
    save_calibration(folder / "classifier", CALIBRATION)
    change_index(folder / "index", DOCUMENTS, settings=KEYWORDS_ALONE)
    return {name: folder / name for name in (*MODELS, "index")}


def arguments(models: dict[str, Path], *names: str) -> list[str]:
    """Return some of the models, by default all, as the command takes them."""
    return [f"{name}={models[name]}" for name in names or models]
