"""A family of published models: how its directories are read and written."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.core.config import MAX_INT
from bert_jax.core.errors import BertJaxError, suggest_name
from bert_jax.core.typed_json import JsonTypeError, coerce_json
from bert_jax.hub.parameter_mapping import ParameterMapping, linear
from bert_jax.hub.sentence_transformers import EmbedderSettings
from bert_jax.hub.tensors import Tensors
from bert_jax.models.encoder_config import COMPUTATION_FIELDS, TRAINING_FIELDS, EncoderConfig, flattened
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.tokenizer_directory import open_tokenizer

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
}
HF_ACTIVATIONS = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
# Heads of labels in most families, by their published names.
LABEL_HEADS = {
    "classify": linear("classify/dense", "classifier"),
    "tag": linear("tag/dense", "classifier"),
    "answer": linear("answer/dense", "qa_outputs"),
}
# Heads that every family has here, but none has in transformers.
OWN_HEADS = {
    "classify_mean": linear("classify_mean/dense", "mean_direction_classifier"),
    "classify_cls": linear("classify_cls/dense", "first_token_direction_classifier"),
    "compare_mean": linear("compare_mean/dense", "mean_comparison"),
    "compare_cls": linear("compare_cls/dense", "first_token_comparison"),
}


def size_of(published: dict, key: str, default: int, where="config.json") -> int:
    """Return a size in a published config, or `default` if it is absent. It may be 0 only if the default is 0."""
    value = default if published.get(key) is None else published[key]
    if type(value) is not int or not min(default, 1) <= value <= MAX_INT:
        raise BertJaxError(f"{where}: {key} = {value!r} is not a size that a model can have")
    return value


def read_activation(name, key: str, known: Mapping[str, str] = ACTIVATIONS) -> str:
    """Return our name of the activation that a published config gives."""
    if name not in list(known):
        raise BertJaxError(f'{key} = "{name!s:.60}" is not supported, only {", ".join(known)}')
    return known[name]


def fit_value(value, value_type: type, key: str, where) -> Any:
    try:
        return coerce_json(value, value_type, key)
    except JsonTypeError as error:
        raise BertJaxError(f"{where}: {error}") from None


def value_of(config: EncoderConfig, name: str) -> Any:
    """Return a field's value as it is published."""
    return getattr(config, "groups" if name == "layer_groups" else name)


@dataclass(frozen=True)
class Family:
    model_type: str  # in config.json, unless `published_type` is; here it names the family
    class_name: str  # "Bert" in BertForMaskedLM
    prefix: str  # before the tensor names of encoder and pooler in models with a head
    # Field -> what it is if its key is absent; None for head_dropout means the value of `hidden_dropout_prob`.
    fields: Mapping[str, Any]
    # Our field -> its value in every model of the family, if it is not our default.
    constants: Mapping[str, Any]
    supported: Mapping[str, tuple]  # published key -> supported values; others are refused
    encoder: Callable[[EncoderConfig], list[ParameterMapping]]
    pooler: list[ParameterMapping]
    # Head -> its parts, including its pooler if it has its own.
    heads: dict[str, list[ParameterMapping]]
    # Field -> its key in config.json, if the key has another name.
    keys: Mapping[str, str] = field(default_factory=dict)
    # Fields that depend on several published keys or on nested ones. `derived`: our field -> function from published
    # keys to its value. `derived_keys` returns the keys of all such fields. `size_of` and `supported` check the values.
    derived: Mapping[str, Callable[[dict], Any]] = field(default_factory=dict)
    derived_keys: Callable[[EncoderConfig], dict[str, Any]] = lambda config: {}
    # Complete the config from the names of the tensors, if these say what no key does.
    complete_from_tensors: Callable[[EncoderConfig, Tensors], EncoderConfig] = lambda config, tensors: config
    # Convert files of older layouts or of other programs to the family's current layout.
    modernize_config: Callable[[dict, Any], dict] = lambda published, where: published
    modernize_tensors: Callable[[Tensors], Tensors] = lambda tensors: tensors
    # Complete what modules.json says of an embedder from config.json, and write it there.
    complete_embedder: Callable[[EmbedderSettings | None, dict], EmbedderSettings | None] = (
        lambda embedder, published: embedder
    )
    embedder_keys: Callable[[EmbedderSettings], dict[str, Any]] = lambda embedder: {}
    find_folder: Callable[[Path], Path] = lambda directory: directory  # of the weights
    open_tokenizer: Callable[[Path], Tokenizer] = open_tokenizer
    # Tensors that files hold although they are no parameters, because transformers reads them.
    computed_tensors: Callable[[EncoderConfig], dict[str, np.ndarray]] = lambda config: {}
    # Keys whose absence would mean something else -> the value that is written if there is no other.
    explicit: Mapping[str, Any] = field(default_factory=dict)
    # Published sizes: full name ("electra-small") -> our fields that differ from what absent keys mean.
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # Ending of a class name -> its heads, if that is not just the architecture of one head.
    architectures: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    not_in_transformers: tuple[str, ...] = ()  # heads for which transformers has no class
    encoder_in_transformers: bool = True
    # The model_type in config.json if it is another family's, and whether a config.json with it is of this family.
    published_type: str = ""
    recognizes: Callable[[dict], bool] = lambda published: True
    known_extra_tensors: tuple[
        str, ...
    ] = ()  # patterns of tensors in files that are not parameters: buffers, copies
    position_offset: int = 0  # rows of the position table before position 0: padding's id + 1
    new_models: bool = False  # whether new models with these constants are published as this family

    @property
    def config_type(self) -> str:
        return self.published_type or self.model_type

    def __post_init__(self):
        object.__setattr__(self, "heads", self.heads | OWN_HEADS)
        object.__setattr__(self, "not_in_transformers", (*self.not_in_transformers, *OWN_HEADS))

    def unsupported_settings(self, config: EncoderConfig) -> list[str]:
        """List the settings that no config of the family can express, such as "block = pre_norm"."""
        variable = {*self.fields, *self.derived, *COMPUTATION_FIELDS, *TRAINING_FIELDS}
        default = EncoderConfig()
        constant = [known.name for known in dataclasses.fields(EncoderConfig) if known.name not in variable]
        expected = {name: getattr(default, name) for name in constant} | dict(self.constants)
        actual = flattened({name: getattr(config, name) for name in expected})
        sizes = [name for name, value in self.fields.items() if type(value) is int and value]
        return [
            *(
                f"{name} = {actual[name]}"
                for name, value in flattened(expected).items()
                if actual[name] != value
            ),
            *(f"{name} = 0" for name in sizes if not value_of(config, name)),
        ]

    def apply_constants(self, config: EncoderConfig) -> EncoderConfig:
        """Return the config with the family's constants in place of our defaults."""
        default = EncoderConfig()
        names = [name for name in self.constants if getattr(config, name) == getattr(default, name)]
        return config.replace(**{name: self.constants[name] for name in names})

    def config_for_size(self, size: str) -> EncoderConfig:
        """Return one of `sizes`, with our default vocabulary size, which means that the tokenizer decides."""
        config = self.read_config({}, size)
        return config.replace(**self.sizes[size], vocab_size=EncoderConfig.vocab_size)

    def parameter_mappings(
        self, config: EncoderConfig, heads: tuple[str, ...], pooler: bool, prefixed: bool
    ) -> list[ParameterMapping]:
        """List every parameter of a model with these heads."""
        head_parts = [part for head in heads for part in self.head_mappings(head, config)]
        own_pooler = any(self.has_own_pooler(head) for head in heads)
        result = self.encoder(config) + (self.pooler if pooler and not own_pooler else [])
        base = f"{self.prefix}." * prefixed
        result = [
            replace(part, tensor_names=tuple(base + name for name in part.tensor_names)) for part in result
        ]
        padding = config.padded_vocab - config.vocab_size
        return [
            replace(
                part,
                leading_rows=self.position_offset if part.per_position else 0,
                padding_rows=padding if part.per_entry else 0,
            )
            for part in result + head_parts
        ]

    def head_mappings(self, head: str, config: EncoderConfig) -> list[ParameterMapping]:
        return [
            part
            for part in self.heads[head]
            if not (part.path == "mlm/decoder" and config.tie_word_embeddings)
        ]

    def has_own_pooler(self, head: str) -> bool:
        return any(part.path.startswith("pooler/") for part in self.heads[head])

    def pooler_names(self, prefixed: bool) -> set[str]:
        return {f"{self.prefix}." * prefixed + name for part in self.pooler for name in part.tensor_names}

    def layers_in(self, names: Mapping, config: EncoderConfig) -> int:
        """Count the layers, or groups of layers, in the published names."""
        numbered = next((part.tensor_names[0] for part in self.encoder(config) if part.layered), "")
        if not numbered:
            return 0
        pattern = re.compile(re.escape(numbered.split("{i}")[0]) + r"(\d{1,6})\.")
        return len({match[1] for name in names if (match := pattern.search(name))})

    def is_extra(self, name: str) -> bool:
        return any(re.search(pattern, name) for pattern in self.known_extra_tensors)

    def read_config(self, published: dict, where, **computed) -> EncoderConfig:
        """Convert a published config to ours; `computed` sets some of the COMPUTATION_FIELDS."""
        for key, choices in self.supported.items():
            if published.get(key) is not None and published[key] not in choices:
                only = f", only {choices[0]!r}" if choices else ""
                raise BertJaxError(f"{where}: {key} = {published[key]!r} is not supported{only}")
        values: dict[str, Any] = dict(self.constants)
        for name, default in self.fields.items():
            key = self.keys.get(name, name)
            value = default if published.get(key) is None else published[key]
            if type(default) is int:
                value = size_of(published, key, default, where)
            elif published.get(key) is not None:
                value = fit_value(value, float if default is None else type(default), key, where)
            if name == "hidden_act":
                if value not in list(ACTIVATIONS):
                    hint = suggest_name(value, ACTIVATIONS)
                    raise BertJaxError(f'{where}: {key} = "{value}" is not supported; {hint}')
                value = ACTIVATIONS[value]
            values[name] = value
        values["max_position_embeddings"] -= self.position_offset
        if values.get("head_dropout") is None:
            values["head_dropout"] = values["hidden_dropout_prob"]
        try:
            values |= {name: read(published) for name, read in self.derived.items()}
            return EncoderConfig(**values, **computed)
        except BertJaxError as error:
            raise BertJaxError(f"{where}: {error}") from None

    def write_config(self, config: EncoderConfig, base: dict) -> dict:
        """Convert our config to the published keys; keys of `base` that we do not write stay as they are."""
        published = dict(self.explicit) | base
        for name, default in self.fields.items():
            key, value = self.keys.get(name, name), value_of(config, name)
            if name == "hidden_act":
                value = HF_ACTIVATIONS[value]
            elif name == "max_position_embeddings":
                value += self.position_offset
            elif default is None and value == config.hidden_dropout_prob and published.get(key) is None:
                continue  # head_dropout
            published[key] = value
        published |= self.derived_keys(config)
        return published | {"model_type": self.config_type, "dtype": "float32"}
