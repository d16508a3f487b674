"""The layout of a model: its parts, and how its family publishes them."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.core.surrogates import holds_surrogates
from bert_jax.hub.families import FAMILIES
from bert_jax.hub.family import Family
from bert_jax.hub.m3_encoder import COLBERT, SPARSE, TOKEN_WEIGHTS, M3Settings
from bert_jax.hub.multi_vector_encoder import MultiVectorSettings
from bert_jax.hub.parameter_mapping import ParameterMapping, linear
from bert_jax.hub.sentence_transformers import (
    CROSS_ENCODER_KEYS,
    PROJECTION,
    EmbedderSettings,
    Projection,
    TextSettings,
)
from bert_jax.hub.sparse_encoder import QUERY_WEIGHTS, SparseSettings
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.heads import HEADS, has_transform

if TYPE_CHECKING:  # JAX is imported only where it is needed
    from bert_jax.models.bert import Bert

PROBLEM_TYPE = "problem_type"  # Hugging Face's key for what a classifier predicts, such as "regression"
PREDICTION_KIND = "prediction_kind"  # the kind of predictions, if Hugging Face's keys do not say it
ALLOW_NO_ANSWER = "allow_no_answer"  # whether the model was trained on questions without an answer
MAY_BE_MISSING = "may_be_missing"  # the same in the config.json of models that were saved with this key
STRICT_TAGS = "strict_tags"  # whether no I- or E- began a span in the tags that the model was trained on
# Keys of config.json that become wrong with a new head.
HEAD_KEYS = (
    "id2label", "label2id", PROBLEM_TYPE, PREDICTION_KIND, ALLOW_NO_ANSWER, MAY_BE_MISSING, STRICT_TAGS,
    *CROSS_ENCODER_KEYS,
)  # fmt: skip


@dataclass(frozen=True)
class Layout:
    config: EncoderConfig
    family: Family = FAMILIES["bert"]
    heads: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    pooler: bool = True
    hf_config: dict = field(default_factory=dict)  # the config.json it came with; unknown keys survive a save
    embedder: EmbedderSettings | None = None  # how it embeds, if it is an embedder
    sparse: SparseSettings | None = None  # how it embeds, if it is a sparse embedder
    multi_vector: MultiVectorSettings | None = None  # how it embeds, if it has a vector for each token
    m3: M3Settings | None = None  # all three, if it has the layers of BGE-M3; one of them is set above

    def __post_init__(self):
        family = self.family
        if differing := family.unsupported_settings(
            self.config
        ):  # other programs would compute something else
            raise BertJaxError(
                f'models of the family "{family.model_type}" cannot have {", ".join(differing)}'
            )
        if missing := [head for head in self.heads if head not in family.heads]:
            raise BertJaxError(f'models of the family "{family.model_type}" have no head "{missing[0]}"')

    @property
    def module(self) -> "Bert":
        from bert_jax.models.bert import Bert

        return Bert(self.config, self.heads, len(self.labels), self.pooler)

    @property
    def module_names(self) -> tuple[str, ...]:
        beside = ["pooler"] * self.pooler + ["transform"] * has_transform(self.config, self.heads)
        side = [PROJECTION] * bool(self.projection)
        side += [QUERY_WEIGHTS] * bool(self.sparse and self.sparse.query_weights)
        return ("encoder", *beside, *self.heads, *side, *[TOKEN_WEIGHTS] * bool(self.m3))

    @property
    def projection(self) -> Projection | None:
        settings = (self.m3 and self.m3.multi_vector) or self.embedder or self.multi_vector
        return settings.projection if settings else None

    @property
    def text_settings(self) -> TextSettings | None:
        """How it reads texts to turn them into vectors; None if it is no embedder."""
        return self.sparse or self.multi_vector or self.embedder

    @property
    def is_static(self) -> bool:
        return self.embedder is not None and self.embedder.is_static

    @property
    def vector_size(self) -> int:
        """The size of the vector into which it embeds a text, or each token of it."""
        if self.sparse:
            return self.config.vocab_size
        settings = self.embedder or self.multi_vector
        return settings.projection.width if settings and settings.projection else self.config.hidden_size

    @property
    def is_cross_encoder(self) -> bool:
        """Whether it scores the relevance of a document for a query, as one logit for the pair."""
        known = any(key in self.hf_config for key in CROSS_ENCODER_KEYS)
        return known and len(self.labels) == 1 and "classify" in self.heads

    def computed_with(self, **settings) -> "Layout":
        """Return the layout with some of the COMPUTATION_FIELDS of its config changed."""
        return replace(self, config=self.config.replace(**settings))

    def embedding_with(self, settings: TextSettings | None) -> "Layout":
        """Return the layout of a model that turns texts into vectors so; None: of one that does not."""
        settings_types = {
            "embedder": EmbedderSettings,
            "sparse": SparseSettings,
            "multi_vector": MultiVectorSettings,
        }
        used = {
            name: settings if isinstance(settings, type_) else None for name, type_ in settings_types.items()
        }
        return replace(self, **used, m3=None)  # type: ignore[arg-type]

    def m3_with(self, vectors: str) -> "Layout":
        """Return the layout of the same model with another of its kinds of vectors; without the layers of BGE-M3, there
        is no other."""
        return replace(self.embedding_with(getattr(self.m3, vectors)), m3=self.m3) if self.m3 else self

    def init(self, key, modules: Iterable[str] | None = None) -> dict:
        """Return initial values of the whole model, or of the named modules only."""
        from bert_jax.models.bert import init_dense, init_params

        params = init_params(self.module, key)
        if projection := self.projection:
            dense = init_dense(key, self.config.hidden_size, projection.width, projection.bias)
            params = params | {PROJECTION: {"dense": dense}}
        if QUERY_WEIGHTS in self.module_names:
            params = params | {QUERY_WEIGHTS: {"weight": np.ones(self.config.vocab_size, np.float32)}}
        if self.m3:
            params = params | {TOKEN_WEIGHTS: {"dense": init_dense(key, self.config.hidden_size, 1, True)}}
        return {name: params[name] for name in (self.module_names if modules is None else modules)}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter, by its path."""
        import jax
        from flax.traverse_util import flatten_dict

        params = jax.eval_shape(self.init, jax.random.key(0))
        return {path: leaf.shape for path, leaf in flatten_dict(params, sep="/").items()}

    def parameter_mappings(self, prefixed: bool) -> list[ParameterMapping]:
        parts = self.family.parameter_mappings(self.config, self.heads, self.pooler, prefixed)
        if projection := self.projection:
            name = COLBERT if self.m3 else f"{PROJECTION}.linear"
            parts = [*parts, *linear(f"{PROJECTION}/dense", name, projection.bias)]
        if QUERY_WEIGHTS in self.module_names:
            parts = [*parts, ParameterMapping(f"{QUERY_WEIGHTS}/weight", (f"{QUERY_WEIGHTS}.weight",))]
        if self.m3:
            parts = [*parts, *linear(f"{TOKEN_WEIGHTS}/dense", SPARSE)]
        return parts

    def with_head(self, head: str, labels: Iterable[str] = ()) -> "Layout":
        """Return the layout of the same encoder with only a new head."""
        listed = isinstance(labels, Iterable) and not isinstance(labels, str)
        if not (listed and all(isinstance(label, str) for label in labels)):
            raise BertJaxError(
                f'labels must be a list of names, such as ["negative", "positive"], not {labels!r:.60}'
            )
        labels = tuple(labels)
        if holds_surrogates(labels):
            raise BertJaxError(
                f"labels {labels!r:.60} hold a lone surrogate, which is not a character; remove it"
            )
        if len(set(labels)) < len(labels):
            raise BertJaxError(f"labels must differ, but {labels!r:.60} has one of them twice")
        check_name(head, HEADS, "head")
        if HEADS[head].labels and not labels:
            raise BertJaxError(f'the head "{head}" needs labels, such as labels=["negative", "positive"]')
        published = {key: value for key, value in self.hf_config.items() if key not in HEAD_KEYS}
        pooler = HEADS[head].pooler
        layout = replace(self, heads=(head,), labels=labels, pooler=pooler, hf_config=published)
        return layout.embedding_with(None)
