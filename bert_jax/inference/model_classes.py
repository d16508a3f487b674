"""The classes as which `load` opens models, by their names."""

from bert_jax.inference.classifier import Classifier
from bert_jax.inference.embedder import Embedder
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.m3_embedder import M3Embedder
from bert_jax.inference.masked_lm import MaskedLM
from bert_jax.inference.multi_vector_embedder import MultiVectorEmbedder
from bert_jax.inference.question_answerer import QuestionAnswerer
from bert_jax.inference.reranker import Reranker
from bert_jax.inference.sparse_embedder import SparseEmbedder
from bert_jax.inference.static_embedder import StaticEmbedder
from bert_jax.inference.tagger import Tagger

CLASSES: dict[str, type[Encoder]] = {
    model_class.__name__: model_class
    for model_class in (
        Embedder, M3Embedder, SparseEmbedder, MultiVectorEmbedder, StaticEmbedder, Classifier, Tagger, QuestionAnswerer,
        Reranker, MaskedLM, Encoder,
    )
}  # fmt: skip
