"""BERT in JAX: pre-train, fine-tune and use BERT encoders on a laptop, a GPU or a TPU slice."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = [
    "AdapterModels",
    "Answer",
    "BertJaxError",
    "Classifier",
    "Embedder",
    "Encoder",
    "Filled",
    "Hit",
    "Index",
    "Label",
    "M3Embedder",
    "M3Vectors",
    "MaskedLM",
    "MultiVectorEmbedder",
    "PseudoLogLikelihood",
    "QuestionAnswerer",
    "Ranked",
    "Reranker",
    "Run",
    "Span",
    "SparseEmbedder",
    "StaticEmbedder",
    "Tagger",
    "TrainingTask",
    "UpdateCounts",
    "compare",
    "evaluate",
    "evaluate_index",
    "finetune",
    "follow",
    "load",
    "mine_hard_negatives",
    "open_task",
    "open_vectors",
    "prepare",
    "train",
    "train_tokenizer",
]
# The modules that define them. Lazy, so that `import bert_jax` and `bert-jax --help` do not wait for JAX.
MODULES = {
    "core.errors": "BertJaxError",
    "inference.adapters": "AdapterModels",
    "inference.classifier": "Classifier Label",
    "inference.embedder": "Embedder",
    "inference.encoder": "Encoder",
    "inference.load": "load",
    "inference.m3_embedder": "M3Embedder M3Vectors",
    "inference.masked_lm": "Filled MaskedLM PseudoLogLikelihood",
    "inference.multi_vector_embedder": "MultiVectorEmbedder",
    "inference.question_answerer": "Answer QuestionAnswerer",
    "inference.reranker": "Ranked Reranker",
    "inference.sparse_embedder": "SparseEmbedder",
    "inference.static_embedder": "StaticEmbedder",
    "inference.tagger": "Span Tagger",
    "runs.corpus": "prepare train_tokenizer",
    "runs.evaluate": "compare evaluate evaluate_index",
    "runs.finetune": "finetune",
    "runs.follow": "follow",
    "runs.hard_negatives": "mine_hard_negatives",
    "runs.train": "Run train",
    "runs.training_task": "TrainingTask open_task",
    "search.index": "Hit Index",
    "search.index_writer": "UpdateCounts",
    "search.vector_shards": "open_vectors",
}
DEFINED = {name: f"bert_jax.{module}" for module, names in MODULES.items() for name in names.split()}

if TYPE_CHECKING:
    from bert_jax.core.errors import BertJaxError
    from bert_jax.inference.adapters import AdapterModels
    from bert_jax.inference.classifier import Classifier, Label
    from bert_jax.inference.embedder import Embedder
    from bert_jax.inference.encoder import Encoder
    from bert_jax.inference.load import load
    from bert_jax.inference.m3_embedder import M3Embedder, M3Vectors
    from bert_jax.inference.masked_lm import Filled, MaskedLM, PseudoLogLikelihood
    from bert_jax.inference.multi_vector_embedder import MultiVectorEmbedder
    from bert_jax.inference.question_answerer import Answer, QuestionAnswerer
    from bert_jax.inference.reranker import Ranked, Reranker
    from bert_jax.inference.sparse_embedder import SparseEmbedder
    from bert_jax.inference.static_embedder import StaticEmbedder
    from bert_jax.inference.tagger import Span, Tagger
    from bert_jax.runs.corpus import prepare, train_tokenizer
    from bert_jax.runs.evaluate import compare, evaluate, evaluate_index
    from bert_jax.runs.finetune import finetune
    from bert_jax.runs.follow import follow
    from bert_jax.runs.hard_negatives import mine_hard_negatives
    from bert_jax.runs.train import Run, train
    from bert_jax.runs.training_task import TrainingTask, open_task
    from bert_jax.search.index import Hit, Index
    from bert_jax.search.index_writer import UpdateCounts
    from bert_jax.search.vector_shards import open_vectors
else:  # type checkers know no other names

    def __getattr__(name: str):
        if name in DEFINED:
            return getattr(import_module(DEFINED[name]), name)
        raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
