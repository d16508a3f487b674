"""The published families: how each writes its configuration, and what it calls the encoder's parameters.

A parameter of ours corresponds to one or more published tensors: `Part` names both sides and converts both ways.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bert_jax.errors import BertJaxError, nearest
from bert_jax.models.config import EncoderConfig
from bert_jax.models.heads import HEADS

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Family:
    model_type: str
    class_name: str  # "Bert" of BertForMaskedLM
    prefix: str  # before the encoder's names wherever a head stands beside it
    head_names: str  # the attribute of a Head that holds its published names
    position_offset: int = 0  # rows of the position table before the first position
    block: str = "post_norm"  # of models/blocks.py


FAMILIES = {
    family.model_type: family
    for family in (
        Family("bert", "Bert", "bert", "bert"),
        # RoBERTa numbers positions from padding's id + 1 on, so the first two rows of its table belong to no token.
        Family("roberta", "Roberta", "roberta", "roberta", position_offset=2),
        Family("xlm-roberta", "XLMRoberta", "roberta", "roberta", position_offset=2),
        Family("camembert", "Camembert", "roberta", "roberta", position_offset=2),
    )
}

# Published key -> (our field, what an absent key means).
FIELDS = {
    "vocab_size": ("vocab_size", 30522),
    "hidden_size": ("hidden_size", 768),
    "num_hidden_layers": ("layers", 12),
    "num_attention_heads": ("heads", 12),
    "intermediate_size": ("feed_forward", 3072),
    "type_vocab_size": ("segment_types", 2),
    "max_position_embeddings": ("max_positions", 512),
    "layer_norm_eps": ("norm_epsilon", 1e-12),
    "hidden_dropout_prob": ("dropout", 0.1),
    "attention_probs_dropout_prob": ("attention_dropout", 0.1),
    "initializer_range": ("init_stddev", 0.02),
    "tie_word_embeddings": ("tied_decoder", True),
}
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
}
# What other models of these families may ask for, and this encoder does not compute.
UNSUPPORTED = {
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "quantization_config": (),
}
LARGEST = 2**31  # of any size in a config; beyond it the file is damaged or hostile


def with_block(block: str) -> Family:
    """The family that a new model of such blocks is published as."""
    for family in FAMILIES.values():
        if family.block == block:
            return family
    raise BertJaxError(f'no published family has blocks "{block}"; add one to FAMILIES in hub/families.py')


def family_of(published: dict, where) -> Family:
    # The first published configs had no model_type; all of them were BERT's.
    model_type = published.get("model_type") or "bert"
    if model_type not in FAMILIES:
        raise BertJaxError(
            f'{where} is of model_type "{model_type}", which is not supported; {nearest(model_type, FAMILIES)}'
        )
    family = FAMILIES[model_type]
    if family.position_offset:
        pad = published.get("pad_token_id", family.position_offset - 1)
        if type(pad) is not int or not 0 <= pad < LARGEST:
            raise BertJaxError(f"{where}: pad_token_id = {pad!r} is no token's id")
        family = replace(family, position_offset=pad + 1)
    return family


def read_config(published: dict, family: Family, where, **computed) -> EncoderConfig:
    """A published configuration as ours; `computed` are the fields that say how it is computed."""
    for key, allowed in UNSUPPORTED.items():
        if published.get(key) is not None and published[key] not in allowed:
            raise BertJaxError(
                f"{where}: {key} = {published[key]!r} is not supported"
                + (f", only {allowed[0]!r}" if allowed else "")
            )
    fields: dict[str, Any] = {}
    for key, (name, default) in FIELDS.items():
        value = published.get(key)
        fields[name] = default if value is None else value
        if type(default) is int and (type(fields[name]) is not int or not 0 < fields[name] < LARGEST):
            raise BertJaxError(f"{where}: {key} = {value!r} is no size a model can have")
    fields["max_positions"] -= family.position_offset
    activation = published.get("hidden_act", "gelu")
    if activation not in ACTIVATIONS:
        raise BertJaxError(
            f'{where}: hidden_act = "{activation}" is not supported; {nearest(activation, ACTIVATIONS)}'
        )
    dropout = published.get("classifier_dropout")
    fields |= {
        "activation": ACTIVATIONS[activation],
        "block": family.block,
        "head_dropout": fields["dropout"] if dropout is None else dropout,
    }
    try:
        return EncoderConfig(**fields, **computed)
    except BertJaxError as error:
        raise BertJaxError(f"{where}: {error}") from None


def write_config(config: EncoderConfig, family: Family, base: dict) -> dict:
    """Our configuration as published; keys of `base` that we do not write stay as they are."""
    published = {key: getattr(config, name) for key, (name, _) in FIELDS.items()}
    published["max_position_embeddings"] += family.position_offset
    published["hidden_act"] = {"gelu": "gelu", "gelu_tanh": "gelu_new"}.get(
        config.activation, config.activation
    )
    if config.head_dropout != config.dropout:
        published["classifier_dropout"] = config.head_dropout
    return {**base, **published, "model_type": family.model_type, "dtype": "float32"}


@dataclass(frozen=True)
class Part:
    """One parameter of ours, at `ours` ("encoder/embeddings/words"), and its published tensors.

    A published name with {i} stands for one tensor a layer, which we keep stacked. A table may be published with
    `before` rows that we leave out, or kept by us with `after` rows of padding.
    """

    ours: str
    theirs: tuple[str, ...]
    join: Callable[[Arrays], np.ndarray] = lambda arrays: arrays[0]
    split: Callable[[np.ndarray], Arrays] = lambda array: [array]
    before: int = 0
    after: int = 0

    @property
    def layered(self) -> bool:
        return "{i}" in self.theirs[0]

    def published(self, layers: int) -> list[str]:
        return [name.format(i=i) for i in range(layers if self.layered else 1) for name in self.theirs]

    def shapes(self, ours: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Published shapes of one layer's tensors, from the shape of ours; nothing is allocated."""
        rows, *rest = ours[1:] if self.layered else ours
        return [
            a.shape
            for a in self.split(np.broadcast_to(np.float32(0), (rows + self.before - self.after, *rest)))
        ]

    def read(self, arrays: Arrays) -> np.ndarray:
        n = len(self.theirs)
        if self.layered:
            return np.stack([self.join(arrays[i : i + n]) for i in range(0, len(arrays), n)])
        array = self.join(arrays)[self.before :]
        return np.pad(array, [(0, self.after)] + [(0, 0)] * (array.ndim - 1)) if self.after else array

    def write(self, array: np.ndarray) -> Arrays:
        if self.layered:
            return [theirs for layer in array for theirs in self.split(layer)]
        array = array[: array.shape[0] - self.after]
        return self.split(
            np.pad(array, [(self.before, 0)] + [(0, 0)] * (array.ndim - 1)) if self.before else array
        )


def kernel(ours: str, theirs: str) -> Part:
    # torch keeps a linear layer as [out, in].
    return Part(ours, (theirs,), lambda a: a[0].T, lambda a: [a.T])


def parts(
    config: EncoderConfig, family: Family, heads: tuple[str, ...], pooler: bool, prefixed: bool
) -> list[Part]:
    """Every parameter of a model with these heads, in published order."""
    c = config
    D, H, K = c.hidden_size, c.heads, c.head_size
    base = f"{family.prefix}." if prefixed else ""

    padding = c.padded_vocab - c.vocab_size
    layer, ours = base + "encoder.layer.{i}.", "encoder/layers/"
    query_key_value = [f"{layer}attention.self.{name}." for name in ("query", "key", "value")]
    result = [
        Part("encoder/embeddings/words", (f"{base}embeddings.word_embeddings.weight",), after=padding),
        Part(
            "encoder/embeddings/positions",
            (f"{base}embeddings.position_embeddings.weight",),
            before=family.position_offset,
        ),
        Part("encoder/embeddings/segments", (f"{base}embeddings.token_type_embeddings.weight",)),
        Part("encoder/embeddings/norm/scale", (f"{base}embeddings.LayerNorm.weight",)),
        Part("encoder/embeddings/norm/bias", (f"{base}embeddings.LayerNorm.bias",)),
        Part(
            ours + "attention/qkv/kernel",
            tuple(name + "weight" for name in query_key_value),
            lambda arrays: np.stack([a.T.reshape(D, H, K) for a in arrays], axis=1),
            lambda array: [array[:, n].reshape(D, D).T for n in range(3)],
        ),
        Part(
            ours + "attention/qkv/bias",
            tuple(name + "bias" for name in query_key_value),
            lambda arrays: np.stack([a.reshape(H, K) for a in arrays]),
            lambda array: [array[n].reshape(D) for n in range(3)],
        ),
        Part(
            ours + "attention/out/kernel",
            (layer + "attention.output.dense.weight",),
            lambda arrays: arrays[0].T.reshape(H, K, D),
            lambda array: [array.reshape(D, D).T],
        ),
        Part(ours + "attention/out/bias", (layer + "attention.output.dense.bias",)),
        Part(ours + "attention_norm/scale", (layer + "attention.output.LayerNorm.weight",)),
        Part(ours + "attention_norm/bias", (layer + "attention.output.LayerNorm.bias",)),
        kernel(ours + "feed_forward/in/kernel", layer + "intermediate.dense.weight"),
        Part(ours + "feed_forward/in/bias", (layer + "intermediate.dense.bias",)),
        kernel(ours + "feed_forward/out/kernel", layer + "output.dense.weight"),
        Part(ours + "feed_forward/out/bias", (layer + "output.dense.bias",)),
        Part(ours + "feed_forward_norm/scale", (layer + "output.LayerNorm.weight",)),
        Part(ours + "feed_forward_norm/bias", (layer + "output.LayerNorm.bias",)),
    ]
    if pooler:
        at = pooler_name(family, heads, base)
        result += [kernel("pooler/dense/kernel", at + ".weight"), Part("pooler/dense/bias", (at + ".bias",))]
    for head in heads:
        for name, theirs in head_names(head, family, config).items():
            path = f"{head}/{name}"
            if path in ("mlm/bias", "mlm/decoder"):
                result.append(Part(path, (theirs,), after=padding))
            else:
                result.append(kernel(path, theirs) if name.endswith("kernel") else Part(path, (theirs,)))
    return result


def pooler_name(family: Family, heads: tuple[str, ...], base: str) -> str:
    # RoBERTa's classifier brings its own pooler, which is published under the classifier's name.
    return "classifier.dense" if family.prefix == "roberta" and "classify" in heads else f"{base}pooler.dense"


def head_names(head: str, family: Family, config: EncoderConfig) -> dict[str, str]:
    """A head's parameters and their published names; empty where the family has no such head."""
    names = getattr(HEADS[head], family.head_names)
    return {ours: theirs for ours, theirs in names.items() if not (ours == "decoder" and config.tied_decoder)}
