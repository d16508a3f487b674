"""BERT in JAX: pre-train, fine-tune and use BERT encoders on a laptop, a GPU or a TPU slice."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = [
    "Answer",
    "BertJaxError",
    "Classifier",
    "Embedder",
    "Encoder",
    "Filled",
    "Hit",
    "Index",
    "Label",
    "MaskedLM",
    "PseudoLogLikelihood",
    "QuestionAnswerer",
    "Ranked",
    "Reranker",
    "Run",
    "Span",
    "Tagger",
    "TrainingTask",
    "UpdateCounts",
    "compare",
    "evaluate",
    "evaluate_index",
    "finetune",
    "load",
    "mine_hard_negatives",
    "open_task",
    "open_vectors",
    "prepare",
    "train",
    "train_tokenizer",
]
# Where each name is defined. Lazy, so that `import bert_jax` and `bert-jax --help` do not wait for JAX.
DEFINED = {
    "Answer": "bert_jax.inference.question_answerer",
    "BertJaxError": "bert_jax.core.errors",
    "Classifier": "bert_jax.inference.classifier",
    "Embedder": "bert_jax.inference.embedder",
    "Encoder": "bert_jax.inference.encoder",
    "Filled": "bert_jax.inference.masked_lm",
    "Hit": "bert_jax.search.index",
    "Index": "bert_jax.search.index",
    "Label": "bert_jax.inference.classifier",
    "MaskedLM": "bert_jax.inference.masked_lm",
    "PseudoLogLikelihood": "bert_jax.inference.masked_lm",
    "QuestionAnswerer": "bert_jax.inference.question_answerer",
    "Ranked": "bert_jax.inference.reranker",
    "Reranker": "bert_jax.inference.reranker",
    "Run": "bert_jax.runs.train",
    "Span": "bert_jax.inference.tagger",
    "Tagger": "bert_jax.inference.tagger",
    "TrainingTask": "bert_jax.runs.training_task",
    "UpdateCounts": "bert_jax.search.index_writer",
    "compare": "bert_jax.runs.evaluate",
    "evaluate": "bert_jax.runs.evaluate",
    "evaluate_index": "bert_jax.runs.evaluate",
    "finetune": "bert_jax.runs.finetune",
    "load": "bert_jax.inference.load",
    "mine_hard_negatives": "bert_jax.runs.hard_negatives",
    "open_task": "bert_jax.runs.training_task",
    "open_vectors": "bert_jax.search.vector_shards",
    "prepare": "bert_jax.runs.corpus",
    "train": "bert_jax.runs.train",
    "train_tokenizer": "bert_jax.runs.corpus",
}

if TYPE_CHECKING:
    from bert_jax.core.errors import BertJaxError
    from bert_jax.inference.classifier import Classifier, Label
    from bert_jax.inference.embedder import Embedder
    from bert_jax.inference.encoder import Encoder
    from bert_jax.inference.load import load
    from bert_jax.inference.masked_lm import Filled, MaskedLM, PseudoLogLikelihood
    from bert_jax.inference.question_answerer import Answer, QuestionAnswerer
    from bert_jax.inference.reranker import Ranked, Reranker
    from bert_jax.inference.tagger import Span, Tagger
    from bert_jax.runs.corpus import prepare, train_tokenizer
    from bert_jax.runs.evaluate import compare, evaluate, evaluate_index
    from bert_jax.runs.finetune import finetune
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
