"""The layout of a model: its parts, and how its family publishes them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.core.surrogates import holds_surrogates
from bert_jax.hub.families import FAMILIES
from bert_jax.hub.family import OWN_HEADS, Family
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
MAY_BE_MISSING = "may_be_missing"  # whether the model was trained on questions without an answer
AUTO_MAP = "auto_map"  # Hugging Face's key for the classes of a file in the directory that open the model
MODELING_FILE = "modeling_bert_jax.py"  # that file, a copy of ours
# Heads with a class in that file, named after the architecture -> the class of transformers that opens it.
AUTO_CLASSES = dict.fromkeys(OWN_HEADS, "AutoModelForSequenceClassification") | {
    "answer": "AutoModelForQuestionAnswering"
}
STRICT_TAGS = "strict_tags"  # whether no I- or E- began a span in the tags that the model was trained on
# Keys of config.json that become wrong with a new head.
HEAD_KEYS = (
    "id2label", "label2id", PROBLEM_TYPE, PREDICTION_KIND, MAY_BE_MISSING, STRICT_TAGS, *CROSS_ENCODER_KEYS
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
        side = [PROJECTION] * bool(self.projection) + [QUERY_WEIGHTS] * self.has_query_weights
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
    def has_query_weights(self) -> bool:
        return self.sparse is not None and self.sparse.query_weights

    @property
    def is_static(self) -> bool:
        return self.embedder is not None and self.embedder.is_static

    @property
    def usual_engine(self) -> str:
        """The engine that computes it unless another one is named."""
        return "numpy" if self.is_static else "jax"

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
        kinds = {"embedder": EmbedderSettings, "sparse": SparseSettings, "multi_vector": MultiVectorSettings}
        used = {name: settings if isinstance(settings, kind) else None for name, kind in kinds.items()}
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
        if self.has_query_weights:
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
        if self.has_query_weights:
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

    def to_hf_tensors(self, params: Mapping) -> dict[str, np.ndarray]:
        """Convert the parameters to their published names and shapes."""
        from flax.traverse_util import flatten_dict

        flat = flatten_dict(params, sep="/")
        tensors: dict[str, np.ndarray] = {}
        for part in self.parameter_mappings(prefixed=bool(self.heads)):
            names = part.all_tensor_names(self.config.groups)
            arrays = part.to_tensors(np.asarray(flat[part.path], np.float32))
            tensors |= zip(names, map(np.ascontiguousarray, arrays), strict=True)
        prefix = f"{self.family.prefix}." * bool(self.heads)
        computed = self.family.computed_tensors(self.config)
        return tensors | {prefix + name: array for name, array in computed.items()}

    def to_hf_config(self, pad: int | None = None) -> dict:
        """Return the content of config.json; `pad` is the id of the tokenizer's padding token."""
        published = self.family.write_config(self.config, self.hf_config)
        published |= {AUTO_MAP: self.auto_map | self.remote_classes(published.pop(AUTO_MAP, None))}
        if not published[AUTO_MAP]:
            del published[AUTO_MAP]
        published["architectures"] = [self.family.class_name + self.architecture]
        if self.embedder:
            published |= self.family.embedder_keys(self.embedder)
        if self.labels:
            published["id2label"] = {str(i): label for i, label in enumerate(self.labels)}
            published["label2id"] = {label: i for i, label in enumerate(self.labels)}
        if self.family.position_offset:
            pad = self.family.position_offset - 1
        return published if pad is None else published | {"pad_token_id": pad}

    @property
    def auto_map(self) -> dict[str, str]:
        """The class of MODELING_FILE that opens the model, by the class of transformers that looks for it; {} if
        transformers opens the model without that file."""
        head = self.heads[-1] if self.heads else ""
        if head not in self.family.not_in_transformers or head not in AUTO_CLASSES:
            return {}
        if not self.family.encoder_in_transformers:  # that file has heads alone
            return {}
        # Our own heads have a class for all families; what only some families lack, one for each of them.
        family = "" if head in OWN_HEADS else self.family.class_name
        return {AUTO_CLASSES[head]: f"{Path(MODELING_FILE).stem}.{family}{HEADS[head].architecture}"}

    def remote_classes(self, auto_map) -> dict[str, str]:
        """Return the entries of `auto_map`, the key of config.json, that still open the model when it is saved again.

        The code in the directory is not copied. That of a repository (OWNER/NAME--FILE.CLASS) is read there, and the
        families that transformers lacks are saved in its layout.
        """
        if self.family.encoder_in_transformers or not isinstance(auto_map, dict):
            return {}
        return {name: path for name, path in auto_map.items() if isinstance(path, str) and "--" in path}

    @property
    def architecture(self) -> str:
        """The ending of the class name: "ForMaskedLM", or "Model" without heads."""
        for architecture, heads in self.family.architectures.items():
            if set(heads) <= set(self.heads):
                return architecture
        return HEADS[self.heads[-1]].architecture if self.heads else "Model"
