"""Training a late-interaction model (multi-vector, ColBERT) on groups of texts: a vector for each token of a text.

The score of a document is the sum, over the tokens of the query, of their highest products with one of its tokens.
"""

import string
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, ClassVar, Literal, Self

import jax.numpy as jnp
import numpy as np

from bert_jax.core.config import NonNegative, OneOf
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.groups import Group
from bert_jax.data.examples.row_packing import Target
from bert_jax.finetuning.embedding_task import (
    VECTORS,
    EmbeddingEvaluator,
    EmbeddingTask,
    EncodedText,
    GroupLossConfig,
    GroupsRunConfig,
    gather_targets,
)
from bert_jax.finetuning.encoded_windows import gather_by_example
from bert_jax.finetuning.epochs_config import InitEncoderConfig
from bert_jax.finetuning.model_cards import library, truncation_lines, usage
from bert_jax.hub.layout import Layout
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.hub.multi_vector_encoder import DOCUMENT, QUERY, MultiVectorSettings, QueryExpansion
from bert_jax.hub.sentence_transformers import PROJECTION, EmbedderSettings, Projection
from bert_jax.inference.max_sim import max_sim_matrix
from bert_jax.inference.token_vectors import expand_query, token_choice
from bert_jax.losses.embedding import EmbeddingLoss
from bert_jax.losses.late_interaction import (
    LATE_INTERACTION_LOSSES,
    LateInteractionLossSettings,
    TokenVectorBatch,
)
from bert_jax.models.token_vectors import vectors_of_tokens
from bert_jax.tasks.embed import (
    choose_loss,
    choose_text_settings,
    open_groups,
    outline_groups,
    refuse_scored_pairs,
)
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.truncation import TruncationCounter
from bert_jax.training.objective import apply_model
from bert_jax.training.parameter_rules import Rules
from bert_jax.training.task import ModelCard, Outline

DIMENSIONS = 128  # of a new dense layer
COMPARED = "compared"  # which tokens are scored, [B, L]
MASK = "attention_mask"


@dataclass(frozen=True)
class LateInteractionModelConfig(InitEncoderConfig):
    """How the encoder computes, and which tokens are compared; "auto" keeps what the directory says."""

    # dimensions of the vectors, set by a dense layer; 0: as in `init`, or 128 if it has no dense layer
    dimensions: NonNegative = 0
    # whether queries are lengthened with mask tokens, whose vectors are compared, too; fixed: to model.query_length;
    # min: the same, but longer queries are read whole; auto: as in `init`, else none
    query_expansion: Literal["auto", "none", "fixed", "min"] = "auto"
    # the most tokens of a query, or the length that it gets; 0: as in `init`, else 32 if queries are lengthened
    query_length: NonNegative = 0
    # whether other tokens attend to those that lengthen a query; auto: as in `init`, else no
    attend_to_expansion: Literal["auto", "yes", "no"] = "auto"
    # tokens of documents that are not compared; auto: as in `init`, else none
    skiplist: Literal["auto", "none", "punctuation"] = "auto"


@dataclass(frozen=True)
class LateInteractionLossConfig(GroupLossConfig):
    losses: ClassVar[dict[str, EmbeddingLoss]] = LATE_INTERACTION_LOSSES

    # loss; auto: teacher_ranking for groups with scores, else multiple_negatives
    name: Annotated[str, OneOf(("auto", *LATE_INTERACTION_LOSSES))] = "auto"
    # whether the scores of a group are scaled to 0..1 before they are compared with the teacher's (teacher_ranking)
    normalize_scores: bool = False


@dataclass(frozen=True)
class Config(GroupsRunConfig):
    # Tokens of an embedder are compared well before any training, which higher rates undo.
    base_learning_rate: ClassVar[float] = 5e-6

    model: LateInteractionModelConfig = field(default_factory=LateInteractionModelConfig)
    loss: LateInteractionLossConfig = field(default_factory=LateInteractionLossConfig)

    def resolve_length(self, init: Layout) -> Self:
        settings = init.multi_vector
        if settings and settings.document_length and not self.data.max_length:
            return replace(self, data=replace(self.data, max_length=settings.document_length))
        return super().resolve_length(init)


@dataclass(frozen=True)
class LateInteractionTask(EmbeddingTask):
    """Trains a late-interaction model. Its outputs are the vectors of all tokens of the rows."""

    groups_per_step: int = 0  # the most; 0: as many as the rows can hold
    longest_texts: tuple[int, int] = (0, 0)  # the most tokens of a query and of a document; 0: those of a row
    each_token: ClassVar[bool] = True
    rules: ClassVar[Rules] = ()

    @property
    def multi_vector(self) -> MultiVectorSettings:
        assert self.layout.multi_vector
        return self.layout.multi_vector

    @property
    def targets(self) -> dict[str, Target]:
        of_tokens = {COMPARED: Target("int32", each_token=True)}
        if hides_expansion(self.multi_vector):
            of_tokens[MASK] = Target("int32", each_token=True)
        return super().targets | of_tokens

    def encode_texts(
        self, tokenizer: Tokenizer, texts: Sequence[str], n: int, most: int
    ) -> list[EncodedText]:
        """Lengthen queries; say which tokens are compared and, if not all of them are attended to, which are."""
        settings, reads = self.multi_vector, self.layout.config.max_position_embeddings
        longest = settings.longest(DOCUMENT if n else QUERY, reads)
        if not n and settings.expansion:
            most = max(most, settings.expansion.length)
        choose = token_choice(settings, DOCUMENT if n else QUERY, tokenizer)
        encoded = []
        for encoding in tokenizer.encode(texts, max_length=min(most, longest)):
            text = encoding if n else expand_query(encoding, settings, tokenizer)
            of_tokens = {COMPARED: choose(text.input_ids)}
            if hides_expansion(settings):
                of_tokens[MASK] = np.arange(len(text.input_ids)) < len(encoding.input_ids)
            encoded.append((text, of_tokens))
        return encoded

    def make_evaluator(self, groups: Sequence[Group]) -> "LateInteractionEvaluator":
        return LateInteractionEvaluator(groups, False, averages_scores(self.multi_vector))

    def outputs(self, params: dict, batch: dict, constants: dict | None = None, key=None) -> dict:
        """Return the vectors of the tokens, [B, L, D]."""
        hidden = apply_model(self.layout, params, batch, key)["hidden"]
        layer, activation = None, "none"
        if projection := self.multi_vector.projection:
            layer, activation = params[PROJECTION]["dense"], projection.activation
        return {VECTORS: vectors_of_tokens(hidden, layer, activation, self.multi_vector.normalize)}

    def gather_groups(self, outputs: dict, batch: dict) -> tuple[TokenVectorBatch, dict]:
        """Return the vectors of the tokens of all groups, and the other arrays by group."""
        groups = gather_targets(outputs, batch, self.texts_per_group)
        count = self.groups_per_step or len(groups["ids"])
        groups = {name: values[:count] for name, values in groups.items()}
        B, L = batch["input_ids"].shape
        per_row = batch["label_weights"].size // B
        texts = jnp.arange(B * per_row).reshape(batch["label_weights"].shape)
        starts = L * (texts // per_row) + batch.get("cls_positions", 0)
        text_of_token = per_row * jnp.arange(B)[:, None] + batch.get("segment_ids", 1) - 1
        text_of_token = jnp.where(batch[COMPARED] > 0, text_of_token, -1).reshape(-1)
        texts, starts = (gather_by_example(x, batch, self.texts_per_group)[:count] for x in (texts, starts))
        vectors = outputs[VECTORS].astype(jnp.float32).reshape(B * L, -1)

        def take(which, longest: int):
            positions = jnp.minimum(starts[:, which, None] + jnp.arange(min(longest or L, L)), B * L - 1)
            return vectors[positions], text_of_token[positions] == texts[:, which, None]

        query, document = self.longest_texts
        return TokenVectorBatch(*take(0, query), *take(slice(1, None), document)), groups

    def predictions(self, outputs: dict, batch: dict):
        """Return the vectors of tokens; those that are not compared are zeros."""
        return outputs[VECTORS] * batch[COMPARED][..., None]


def hides_expansion(settings: MultiVectorSettings) -> bool:
    """Whether queries have tokens that others do not attend to."""
    return settings.expansion is not None and not settings.expansion.attend


def averages_scores(settings: MultiVectorSettings) -> bool:
    return settings.similarity == "meanmaxsim"


class TokenRows:
    """Token vectors of texts as `search_exact` reads them; their product is MaxSim."""

    def __init__(self, texts: list[np.ndarray], mean: bool):
        self.texts, self.mean = texts, mean

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, which: slice) -> "TokenRows":
        return TokenRows(self.texts[which], self.mean)

    @property
    def T(self) -> "TokenRows":
        return self

    def __matmul__(self, documents: "TokenRows") -> np.ndarray:
        return max_sim_matrix(self.texts, documents.texts, self.mean)


@dataclass(frozen=True)
class LateInteractionEvaluator(EmbeddingEvaluator):
    """Ranks documents by MaxSim."""

    mean: bool

    def stack(self, vectors: list[np.ndarray]) -> TokenRows:
        return TokenRows([text[text.any(-1)] for text in vectors], self.mean)


def open(config: Config, directories: ModelDirectories) -> tuple[LateInteractionTask, Epochs, Config]:
    task, data, config = open_groups(config, directories, make_late_interaction_task, late_interaction_card)
    encoded_windows, size = [*data.train, *data.validation], task.texts_per_group
    is_query = [n % size == 0 for n in range(len(encoded_windows))]
    longest = [
        max(len(window) for window, query in zip(encoded_windows, is_query, strict=True) if query is wanted)
        for wanted in (True, False)
    ]
    return replace(task, longest_texts=(longest[0], longest[1])), data, config


def outline(config: Config, directories: ModelDirectories) -> Outline:
    return outline_groups(config, directories, open, make_late_interaction_task)


def make_late_interaction_task(
    config: Config, directories: ModelDirectories, texts: int, scores: int
) -> LateInteractionTask:
    refuse_scored_pairs(config, texts, scores, "late-interaction models")
    loss, settings = choose_loss(config, texts, scores)
    layout = late_interaction_layout(config, directories[config.init].layout)
    assert layout.multi_vector
    normalize = config.loss.normalize_scores
    if normalize and "normalize_scores" not in loss.reads:
        raise BertJaxError(
            f"loss.name={loss.name} does not use loss.normalize_scores; losses that do: teacher_ranking"
        )
    return LateInteractionTask(
        layout,
        loss,
        LateInteractionLossSettings(
            **asdict(settings), mean=averages_scores(layout.multi_vector), normalize_scores=normalize
        ),
        texts_per_group=texts,
        scores_per_group=scores * loss.scored,
        groups_per_step=config.batch_size,
    )


def late_interaction_layout(config: Config, source: Layout) -> Layout:
    """Return the layout of the encoder of `source`, without heads, whose tokens are compared as the config says."""
    source = source.computed_with(**config.model.compute_settings)
    encoder = config.model.update_encoder(source.config, config.data.max_length, config.init)
    settings = choose_tokens(config, source.multi_vector or start_settings(config, source), encoder)
    if hides_expansion(settings):
        # Other kernels give no states of tokens that are not attended to.
        if encoder.attention not in ("auto", "xla"):
            raise BertJaxError(
                f"model.attention={encoder.attention} gives no states of tokens that are not attended to; set "
                "--config.model.attention=xla, or --config.model.attend_to_expansion=yes"
            )
        encoder = encoder.replace(attention="xla")
    layout = replace(source, config=encoder, heads=(), labels=(), pooler=False)
    return layout.embedding_with(settings)


def start_settings(config: Config, source: Layout) -> MultiVectorSettings:
    """Return the settings of a start that compares no tokens; the dense layer of an embedder is that of its tokens."""
    texts = source.text_settings or EmbedderSettings()
    if unknown := source.embedder and source.embedder.unknown:
        raise BertJaxError(
            f"{config.init} embeds by {unknown}, which is not supported here; name its encoder alone, or another start"
        )
    return MultiVectorSettings(
        max_length=texts.max_length,
        lower_case=texts.lower_case,
        prompts=texts.prompts,
        default_prompt=texts.default_prompt,
        projection=source.projection or Projection(config.model.dimensions or DIMENSIONS, bias=False),
    )


def choose_tokens(config: Config, source: MultiVectorSettings, encoder) -> MultiVectorSettings:
    """Return the settings with the lengths, the dense layer, the expansion and the skiplist of the config."""
    model = config.model
    if model.query_length > encoder.max_position_embeddings:
        raise BertJaxError(
            f"model.query_length is {model.query_length}, but {config.init} reads at most "
            f"{encoder.max_position_embeddings} tokens; set fewer"
        )
    projection, width = source.projection, model.dimensions
    if projection and width and width != projection.width:
        raise BertJaxError(
            f"{config.init} already has a dense layer, which makes vectors of {projection.width} dimensions; leave "
            f"--config.model.dimensions={width} out"
        )
    expansion = choose_expansion(model, source.expansion)
    skiplist = {"auto": source.skiplist, "none": (), "punctuation": tuple(string.punctuation)}[model.skiplist]
    return replace(
        source,
        **choose_text_settings(config, source),
        projection=projection or (Projection(width, bias=False) if width else None),
        query_length=source.query_length if expansion else model.query_length or source.query_length,
        document_length=source.document_length and max(source.document_length, config.data.max_length),
        expansion=expansion,
        skiplist=skiplist,
    )


def choose_expansion(
    model: LateInteractionModelConfig, source: QueryExpansion | None
) -> QueryExpansion | None:
    how = model.query_expansion
    if how == "none" or (how == "auto" and not source):
        if model.attend_to_expansion != "auto":
            raise BertJaxError(
                "model.attend_to_expansion is for queries that are lengthened; leave it out, or set "
                "--config.model.query_expansion=fixed"
            )
        return None
    expansion = source or QueryExpansion()
    return replace(
        expansion,
        strategy=expansion.strategy if how == "auto" else how,
        length=model.query_length or expansion.length,
        attend=expansion.attend
        if model.attend_to_expansion == "auto"
        else model.attend_to_expansion == "yes",
    )


def late_interaction_card(
    task: LateInteractionTask, config: Config, data: str, truncated: TruncationCounter
) -> ModelCard:
    """Return the card of a late-interaction model; `data` describes what it is trained on."""
    settings, expansion = task.multi_vector, task.multi_vector.expansion
    lengthened = f" Queries are lengthened to {expansion.length} tokens." if expansion else ""
    skipped = f' Tokens such as "{settings.skiplist[0]}" are not compared.' if settings.skiplist else ""
    scaled = "scale" in task.loss.reads
    return ModelCard(
        library=library(task.layout),
        pipeline="sentence-similarity",
        tags=("multi-vector", "late-interaction", "colbert"),
        about=[
            f"A late-interaction model (ColBERT): each token of a text becomes a vector of {task.layout.vector_size} "
            f"dimensions, and texts are compared by MaxSim.{lengthened}{skipped}",
            f"It reads the first {settings.document_length or settings.max_length} tokens of a document; the rest is "
            "truncated.",
            *[f'The prompt of a {name} is "{text}".' for name, text in settings.prompts.items() if text],
        ],
        usage=usage(
            task.layout,
            'MultiVectorEmbedder.load("DIR").encode_document(["a text"])',
            'MultiVectorEncoder\nMultiVectorEncoder("DIR").encode_document(["a text"])',
        ),
        data=[f"{data}.", *truncation_lines(truncated, "texts")],
        recipe={
            "loss": task.loss.name,
            "scale of scores": f"{task.settings.scale:g}" if scaled else "",
            "groups per step": f"{config.batch_size:,}",
        },
    )
