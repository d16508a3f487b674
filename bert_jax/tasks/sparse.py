"""Training a sparse embedder (SPLADE) on groups of texts: the weights of words that a text is about.

A masked LM's logits are pooled to the vector of a text. Queries can do without the network: their vectors are then
weights of the tokens that occur in them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np

from bert_jax.core.config import OneOf, Range
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.groups import Group
from bert_jax.data.examples.row_packing import INDEX, EncodedWindow
from bert_jax.finetuning.embedding_task import (
    VECTORS,
    EmbeddingEvaluator,
    EmbeddingTask,
    EncodedText,
    GroupLossConfig,
    GroupsRunConfig,
)
from bert_jax.finetuning.epochs_config import InitEncoderConfig
from bert_jax.finetuning.model_cards import library, truncation_lines, usage
from bert_jax.hub.layout import Layout
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.hub.sparse_encoder import QUERY_WEIGHTS, SparseSettings
from bert_jax.inference.computations import SparseVector
from bert_jax.inference.sparse_vectors import stack_vectors
from bert_jax.losses.embedding import EMBEDDING_LOSSES, EmbeddingLoss
from bert_jax.losses.loss import Loss
from bert_jax.losses.sparse import ACTIVE_DIMS, FLOPS, flops_regularizer, sparsity_scores, warmup_share
from bert_jax.models.cost import pre_training_flops
from bert_jax.models.pooling import segment_mask
from bert_jax.models.sparse_pooling import binary_vectors, sparse_vectors
from bert_jax.tasks.embed import (
    choose_loss,
    choose_text_settings,
    open_groups,
    outline_groups,
    refuse_scored_pairs,
    teacher_shape,
)
from bert_jax.text.encoding import Encoding
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.truncation import TruncationCounter
from bert_jax.training.gradient import STEPS
from bert_jax.training.objective import apply_model
from bert_jax.training.parameter_rules import Rules
from bert_jax.training.task import ModelCard, Outline

if TYPE_CHECKING:
    from scipy.sparse import csr_array

LOSSES = {
    name: replace(EMBEDDING_LOSSES[name], scale=1.0)
    for name in ("multiple_negatives", "guided", "margin_mse", "teacher_ranking")
}
QUERY_REGULARIZER_WEIGHT = 5e-5
Weight = Annotated[float, Range(0, 1e6)]


@dataclass(frozen=True)
class SparseModelConfig(InitEncoderConfig):
    """How the masked LM computes, and how texts become vectors; "auto" keeps what the directory says."""

    # how the logits of a text's tokens are pooled; auto: as in `init`, else their maximum
    pooling: Literal["auto", "max", "sum"] = "auto"
    # function of a logit x; relu: log(1 + relu(x)); log1p_relu: log(1 + log(1 + relu(x))); auto: as in `init`, else
    # relu
    activation: Literal["auto", "relu", "log1p_relu"] = "auto"
    # weights of tokens in queries, which then need no network (inference-free); none: queries are read like documents;
    # learned: trained, from 1 or from those of `init`; idf: fixed, from document frequencies in the training data;
    # auto: those of `init`, trained unless its directory says that they are frozen; none if it has none
    query_weights: Literal["auto", "none", "learned", "idf"] = "auto"


@dataclass(frozen=True)
class SparseLossConfig(GroupLossConfig):
    losses: ClassVar[dict[str, EmbeddingLoss]] = LOSSES
    by_dot: ClassVar[bool] = True

    # loss; auto: teacher_ranking for groups with scores, else multiple_negatives; similarities are inner products
    name: Annotated[str, OneOf(("auto", *LOSSES))] = "auto"
    # weight of the FLOPS regularizer of documents, which makes them sparse; reached after a third of the steps
    document_regularizer_weight: Weight = 3e-5
    # the same of queries; -1: 5e-5, or 0 with weights of tokens in queries
    query_regularizer_weight: Annotated[float, Range(0, 1e6, sentinel=-1)] = -1.0


@dataclass(frozen=True)
class Config(GroupsRunConfig):
    model: SparseModelConfig = field(default_factory=SparseModelConfig)
    loss: SparseLossConfig = field(default_factory=SparseLossConfig)


@dataclass(frozen=True)
class SparseTask(EmbeddingTask):
    """Trains a sparse embedder; regularizers reach their weights after a third of the `steps` of the run."""

    document_weight: float = 0.0
    query_weight: float = 0.0
    idf: bool = False  # whether the weights of tokens in queries follow from the training data
    steps: int = 1
    rules: ClassVar[Rules] = ()
    best_metric = "loss"  # of what is validated, so that a model that is not yet sparse is not the best

    @property
    def sparse(self) -> SparseSettings:
        assert self.layout.sparse
        return self.layout.sparse

    @property
    def frozen(self) -> Rules:
        return ((f"^{QUERY_WEIGHTS}/", True), ("", False)) if self.sparse.frozen else ()

    def flops(self, rows: int, length: int) -> float:
        return pre_training_flops(self.layout.config, rows, length, length)

    def describe_new_params(self, names: Sequence[str]) -> str:
        return "; tokens in queries have weights of 1" if names and not self.idf else ""

    def initial_params(self, params: dict, data: Epochs, steps: int) -> dict:
        if not self.idf:
            return params
        weights = compute_idf(data.train, self.texts_per_group, self.layout.vector_size)
        return params | {QUERY_WEIGHTS: {"weight": weights}}

    def encode_texts(
        self, tokenizer: Tokenizer, texts: Sequence[str], n: int, most: int
    ) -> list[EncodedText]:
        """Encode the n-th texts of groups; tokens of queries are read without special tokens if they have weights."""
        if n or not self.sparse.query_weights:
            return super().encode_texts(tokenizer, texts, n, most)
        return [
            (Encoding(ids[:most], [0] * len(ids[:most]), [(0, 0)] * len(ids[:most]), len(ids[most:])), {})
            for ids in tokenizer.ids(texts)
        ]

    def make_evaluator(self, groups: Sequence[Group]) -> "SparseEvaluator":
        return SparseEvaluator(groups, False, self.layout.vector_size)

    def outputs(self, params: dict, batch: dict, constants: dict | None = None, key=None) -> dict:
        """Return the vectors of the texts, [B, V], or [B, P, V] if rows hold several."""
        outputs, mask = apply_model(self.layout, params, batch, key), segment_mask(batch)
        states = outputs.get("decoded", outputs["hidden"])
        how = self.sparse.pooling, self.sparse.activation
        vectors = sparse_vectors(self.layout.config, params, states, mask, *how)
        if self.sparse.query_weights:
            occurrences = binary_vectors(batch["input_ids"], mask, self.layout.vector_size)
            is_query = batch[INDEX].reshape(mask.shape[:2]) % self.texts_per_group == 0
            weights = params[QUERY_WEIGHTS]["weight"]
            vectors = jnp.where(is_query[..., None], occurrences * weights, vectors)
        return {VECTORS: vectors.reshape(*batch["label_weights"].shape, -1)}

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        """The loss and the regularizers; these have their full weights on the validation set."""
        vectors, groups = self.gather_groups(outputs, batch)
        share = warmup_share(batch[STEPS][0], self.steps) if STEPS in batch else 1.0
        parts = {
            "document_regularizer_loss": (self.document_weight, vectors[:, 1:]),
            "query_regularizer_loss": (self.query_weight, vectors[:, :1]),
        }
        weights = groups["label_weights"]
        return {"embedding_loss": self.loss.compute(vectors, groups, self.settings)} | {
            name: Loss(share * weight * flops_regularizer(part, weights), jnp.float32(1))
            for name, (weight, part) in parts.items()
            if weight
        }

    def scores(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        vectors, groups = self.gather_groups(outputs, batch)
        sparsity = sparsity_scores(vectors[:, :1], vectors[:, 1:], groups["label_weights"])
        return super().scores(outputs, batch) | sparsity

    def predictions(self, outputs: dict, batch: dict):
        return outputs[VECTORS]

    def metrics_from_means(self, means: dict[str, float]) -> dict[str, float]:
        return means | {"loss": sum(mean for name, mean in means.items() if name.endswith("_loss"))}

    def keep_predictions(self, predictions: np.ndarray) -> np.ndarray:
        """Return of each of the vectors [..., V] the entries that are not 0."""
        kept = np.empty(predictions.shape[:-1], object)
        for index in np.ndindex(kept.shape):
            ids = np.flatnonzero(predictions[index])
            kept[index] = SparseVector(ids, predictions[index][ids])
        return kept


def compute_idf(encoded_windows: Sequence[EncodedWindow], texts_per_group: int, entries: int) -> np.ndarray:
    """Return the weights of tokens by the number of documents with them, as BM25 has them: rare tokens weigh most."""
    documents = {
        tuple(window.encoding.input_ids) for n, window in enumerate(encoded_windows) if n % texts_per_group
    }
    counts = np.zeros(entries, np.float32)
    for token, count in Counter(token for ids in documents for token in set(ids)).items():
        counts[token] = count
    return np.log1p((len(documents) - counts + 0.5) / (counts + 0.5))


class SparseRows:
    """Sparse vectors as `search_exact` reads them."""

    def __init__(self, rows: "csr_array"):
        self.rows = rows

    def __len__(self) -> int:
        return self.rows.shape[0]

    def __getitem__(self, which: slice) -> "SparseRows":
        return SparseRows(self.rows[which])

    @property
    def T(self) -> "SparseRows":
        return SparseRows(self.rows.T)

    def __matmul__(self, other: "SparseRows") -> np.ndarray:
        return (self.rows @ other.rows).toarray()


@dataclass(frozen=True)
class SparseEvaluator(EmbeddingEvaluator):
    """Ranks documents by inner products, and measures how sparse the vectors are."""

    entries: int  # of the vocabulary

    def stack(self, vectors: list[SparseVector]) -> SparseRows:
        return SparseRows(stack_vectors(vectors, self.entries))

    def measure(self, queries: SparseRows, documents: SparseRows) -> dict[str, Any]:
        shares = [
            np.bincount(vectors.rows.indices, minlength=self.entries) / len(vectors)
            for vectors in (queries, documents)
        ]
        means = dict(zip(ACTIVE_DIMS, (share.sum() for share in shares), strict=True))
        return means | {FLOPS: shares[0] @ shares[1]}


def open(
    config: Config, directories: ModelDirectories, with_teacher: bool = True
) -> tuple[SparseTask, Epochs, Config]:
    task, data, config = open_groups(
        config, directories, make_sparse_task, sparse_embedder_card, with_teacher
    )
    return replace(task, steps=config.steps), data, config


def preview(config: Config, directories: ModelDirectories) -> tuple[SparseTask, Epochs, Config]:
    return open(config, directories, with_teacher=False)


def outline(config: Config, directories: ModelDirectories) -> Outline:
    return outline_groups(config, directories, preview, make_sparse_task)


def make_sparse_task(config: Config, directories: ModelDirectories, texts: int, scores: int) -> SparseTask:
    wanted = config.loss
    refuse_scored_pairs(config, texts, scores, "sparse embedders")
    loss, settings = choose_loss(config, texts, scores)
    layout = sparse_layout(config, directories[config.init].layout)
    usual = 0.0 if QUERY_WEIGHTS in layout.module_names else QUERY_REGULARIZER_WEIGHT
    query_weight = usual if wanted.query_regularizer_weight < 0 else wanted.query_regularizer_weight
    return SparseTask(
        layout, loss, settings, (), texts, scores * loss.scored, teacher_shape(config, directories, loss, texts),
        document_weight=wanted.document_regularizer_weight, query_weight=query_weight,
        idf=config.model.query_weights == "idf",
    )  # fmt: skip


def sparse_layout(config: Config, source: Layout) -> Layout:
    """Return the layout of the masked LM of `source`, whose logits are pooled as the config says."""
    if "mlm" not in source.heads:
        raise BertJaxError(
            f"{config.init} has no masked LM head, whose logits a sparse embedder pools; name a masked LM, "
            "--config.init=DIR"
        )
    model = config.model
    settings = source.sparse or SparseSettings()
    given = {name: value for name in ("pooling", "activation") if (value := getattr(model, name)) != "auto"}
    if model.query_weights != "auto":
        given |= {"query_weights": model.query_weights != "none", "frozen": model.query_weights == "idf"}
    settings = replace(settings, **given, **choose_text_settings(config, source.text_settings or settings))
    source = source.computed_with(**model.compute_settings)
    encoder = model.update_encoder(source.config, config.data.max_length, config.init)
    layout = replace(source, config=encoder, heads=("mlm",), labels=(), pooler=False)
    return layout.embedding_with(settings)


def sparse_embedder_card(
    task: SparseTask, config: Config, data: str, truncated: TruncationCounter
) -> ModelCard:
    """Return the card of a sparse embedder; `data` describes what it is trained on."""
    sparse = task.sparse
    queries = " Queries need no network: each of their tokens has a weight." * sparse.query_weights
    return ModelCard(
        library=library(task.layout),
        pipeline="feature-extraction",
        tags=("sparse-encoder", "sparse", "splade"),
        about=[
            f"A sparse embedder (SPLADE): a text becomes weights of the {task.layout.vector_size:,} entries of the "
            f"vocabulary, most of them 0, compared by inner products.{queries}",
            f"It reads the first {sparse.max_length} tokens of a text; the rest is truncated.",
            *[f'The prompt of a {name} is "{text}".' for name, text in sparse.prompts.items() if text],
        ],
        usage=usage(
            task.layout,
            'SparseEmbedder.load("DIR").encode_document(["a text"])',
            'SparseEncoder\nSparseEncoder("DIR").encode_document(["a text"])',
        ),
        data=[f"{data}.", *truncation_lines(truncated, "texts")],
        recipe={
            "loss": task.loss.name + " in both directions" * task.settings.symmetric,
            "teacher": f"`{config.loss.teacher}`" if config.loss.teacher else "",
            "document regularizer": f"{task.document_weight:g}",
            "query regularizer": f"{task.query_weight:g}" if task.query_weight else "",
            "groups per step": f"{config.batch_size:,}",
        },
    )
