"""ModernBERT: pre-norm layers and rotary positions; two of three layers attend locally.

mmBERT and Ettin are ModernBERTs of other sizes and tokenizers. Their local layers rotate as slowly as the global ones.
"""

from dataclasses import replace

from bert_jax.core.errors import BertJaxError
from bert_jax.hub.families import bert
from bert_jax.hub.family import HF_ACTIVATIONS, Family, read_activation, size_of
from bert_jax.hub.parameter_mapping import (
    ParameterMapping,
    attention_output,
    fused_qkv,
    gated,
    layer_norm,
    linear,
    masked_lm,
)
from bert_jax.hub.rope import rope_table, theta_of
from bert_jax.models.encoder_config import (
    EncoderConfig,
    LocalAttentionConfig,
    PoolerConfig,
    RotaryConfig,
    layer_sizes,
)

LAYERS = 22
GLOBAL, LOCAL = "full_attention", "sliding_attention"
THETA, LOCAL_THETA, WINDOW, EVERY = 160_000.0, 10_000.0, 128, 3
FIELDS = bert.fields_without("type_vocab_size") | {
    "vocab_size": 50368,
    "num_hidden_layers": LAYERS,
    "intermediate_size": 1152,
    "max_position_embeddings": 8192,
    "layer_norm_eps": 1e-5,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "head_dropout": 0.0,
}
SLOW = RotaryConfig(THETA, THETA)  # of mmBERT and Ettin
KEYS = {
    "layer_norm_eps": "norm_eps",
    "hidden_dropout_prob": "mlp_dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "head_dropout": "classifier_dropout",
    "hidden_act": "hidden_activation",
}


def local_attention(published: dict) -> LocalAttentionConfig:
    layers = size_of(published, "num_hidden_layers", LAYERS)
    width = size_of(published, "local_attention", WINDOW)
    if width < 2:
        raise BertJaxError(f"local_attention = {width} lets a token see only itself; it must be at least 2")
    every = size_of(published, "global_attn_every_n_layers", EVERY)
    if published.get("layer_types") is not None:  # the newer key wins
        every = global_layer_interval(published["layer_types"], layers)
    return LocalAttentionConfig(width // 2, min(every, layers))


def global_layer_interval(layer_types, layers: int) -> int:
    """Return the number of layers from one with full attention to the next; refuse an irregular pattern."""
    if (
        not isinstance(layer_types, list)
        or len(layer_types) != layers
        or not {*map(str, layer_types)} <= {GLOBAL, LOCAL}
    ):
        raise BertJaxError(
            f'layer_types must name "{GLOBAL}" or "{LOCAL}" for each of the {layers} layers: {layer_types!r:.60}'
        )
    global_layers = [i for i in range(layers) if layer_types[i] == GLOBAL]
    every = global_layers[1] - global_layers[0] if len(global_layers) > 1 else layers
    if not global_layers or global_layers != list(range(0, layers, every)):
        raise BertJaxError(
            f'layer_types has "{GLOBAL}" at layers {global_layers} of {layers}; it is supported only at layer 0 and at '
            "equal distances after it"
        )
    return every


def rotary(published: dict) -> RotaryConfig:
    tables = published.get("rope_parameters")
    if tables is None:
        old = {
            GLOBAL: published.get("global_rope_theta"),
            LOCAL: published.get("local_rope_theta", LOCAL_THETA),
        }
        tables = {
            layer_type: None if theta is None else rope_table(theta) for layer_type, theta in old.items()
        }
        # null used to mean the global one
        local_default = theta_of(tables[GLOBAL], THETA, "global_rope_theta")
    elif not isinstance(tables, dict):
        raise BertJaxError(f"rope_parameters = {tables!r:.60} is not a table")
    else:
        local_default = LOCAL_THETA
    return RotaryConfig(
        theta_of(tables.get(GLOBAL), THETA, f"rope_parameters.{GLOBAL}"),
        theta_of(tables.get(LOCAL), local_default, f"rope_parameters.{LOCAL}"),
    )


def head_activation(published: dict) -> str:
    return read_activation(published.get("classifier_activation") or "gelu", "classifier_activation")


def pooler(published: dict) -> PoolerConfig:
    pooling = published.get("classifier_pooling") or "cls"
    if pooling not in ("cls", "mean"):
        raise BertJaxError(f'classifier_pooling = {pooling!r:.60} is neither "cls" nor "mean"')
    return PoolerConfig(head_activation(published), mean=pooling == "mean", norm=True)


def derived_keys(config: EncoderConfig) -> dict:
    every = config.local_attention.every
    return {
        "local_attention": 2 * config.local_attention.window,
        "layer_types": [LOCAL if i % every else GLOBAL for i in range(config.num_hidden_layers)],
        "rope_parameters": {
            GLOBAL: rope_table(config.rotary.theta),
            LOCAL: rope_table(config.rotary.local_theta or config.rotary.theta),
        },
        "classifier_pooling": "mean" if config.pooler.mean else "cls",
        "classifier_activation": HF_ACTIVATIONS[config.pooler.activation],
        # The keys that transformers before version 5 reads.
        "global_attn_every_n_layers": every,
        "global_rope_theta": config.rotary.theta,
        "local_rope_theta": config.rotary.local_theta or config.rotary.theta,
    }


def encoder(config: EncoderConfig) -> list[ParameterMapping]:
    path, tensor = "encoder/layers/", "layers.{i}."
    # The first layer has no attention norm: the embeddings are already normalised.
    norms = [
        replace(part, first_layer=1)
        for part in layer_norm(path + "attention_norm", tensor + "attn_norm", False)
    ]
    return [
        ParameterMapping("encoder/embeddings/words", ("embeddings.tok_embeddings.weight",), per_entry=True),
        *layer_norm("encoder/embeddings/norm", "embeddings.norm", False),
        *fused_qkv(config, path + "attention/qkv", [tensor + "attn.Wqkv"]),
        *attention_output(config, path + "attention/out", tensor + "attn.Wo"),
        *norms[: config.num_hidden_layers - 1],
        gated(config, path + "feed_forward/gated", [tensor + "mlp.Wi"]),
        *linear(path + "feed_forward/out", tensor + "mlp.Wo", False),
        *layer_norm(path + "feed_forward_norm", tensor + "mlp_norm", False),
        *layer_norm("encoder/final_norm", "final_norm", False),
    ]


def prediction_head(path: str) -> list[ParameterMapping]:
    return [*linear(f"{path}/dense", "head.dense", False), *layer_norm(f"{path}/norm", "head.norm", False)]


FAMILY = Family(
    model_type="modernbert",
    class_name="ModernBert",
    prefix="model",
    fields=FIELDS,
    keys=KEYS,
    constants={
        "block": "local_and_global", "positions": "none", "type_vocab_size": 0, "bias": False, "norm_bias": False,
        "head_bias": False, "gated": True, "transform": True, "scaled_init": True,
    },
    derived={
        "local_attention": local_attention,
        "rotary": rotary,
        "pooler": pooler,
        "mlm_activation": head_activation,
        "answer_dropout": lambda published: published.get("classifier_dropout") or 0.0,
    },
    derived_keys=derived_keys,
    # Absent keys would mean the ids of the published vocabulary, which another vocabulary may not have.
    explicit=dict.fromkeys([f"{role}_token_id" for role in ("pad", "bos", "eos", "cls", "sep")]),
    supported={
        "attention_bias": (False,),
        "mlp_bias": (False,),
        "norm_bias": (False,),
        "classifier_bias": (False,),
        "decoder_bias": (True,),
        "is_decoder": (False,),
        "quantization_config": (),
    },
    encoder=encoder,
    pooler=[],
    heads={
        "mlm": masked_lm("head.dense", "head.norm", "decoder", "decoder.bias", False),
        "classify": [*prediction_head("pooler"), *linear("classify/dense", "classifier")],
        "tag": [*prediction_head("transform"), *linear("tag/dense", "classifier")],
        "answer": [*prediction_head("transform"), *linear("answer/dense", "classifier")],
    },
    sizes={
        "modernbert-base": {},
        "modernbert-large": layer_sizes(28, 1024, 16, 2624),
        "mmbert-small": layer_sizes(22, 384, 6, 1152, rotary=SLOW),
        "mmbert-base": layer_sizes(22, 768, 12, 1152, rotary=SLOW),
        "ettin-17m": layer_sizes(7, 256, 4, 384, rotary=SLOW),
        "ettin-32m": layer_sizes(10, 384, 6, 576, rotary=SLOW),
        "ettin-68m": layer_sizes(19, 512, 8, 768, rotary=SLOW),
        "ettin-150m": layer_sizes(22, 768, 12, 1152, rotary=SLOW),
        "ettin-400m": layer_sizes(28, 1024, 16, 2624, rotary=SLOW),
        "ettin-1b": layer_sizes(28, 1792, 28, 3840, rotary=SLOW),
    },
    known_extra_tensors=(r"^decoder\.weight$", r"rotary_emb\..*inv_freq$"),  # the first: copies of tied parameters
)  # fmt: skip
