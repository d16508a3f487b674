"""The families beside transformers: each class with its heads, odd configurations, directories both ways; sizes."""

import pytest

from bert_jax.hub.families import FAMILIES, resolve_size
from bert_jax.hub.layout import Layout
from bert_jax.hub.published_form import to_hf_config
from bert_jax.models.encoder_config import LocalAttentionConfig, RotaryConfig
from bert_jax.text.tokenizer_directory import open_tokenizer
from tests.bench.tokenizers import compare, transformers_on
from tests.support.cases import long_except
from tests.support.families import DEBERTA_CONFIGS, DEBERTA_V2_CONFIGS
from tests.support.optional_modules import torch, transformers
from tests.support.parity import FINE_TUNED_HEADS, assert_equals_transformers
from tests.support.vocabularies import MULTILINGUAL_TEXTS, write_json, write_wordpiece

CLASSES = {"Model": (), "ForMaskedLM": ("mlm",), **FINE_TUNED_HEADS}
OTHER_CLASSES = {
    "electra": CLASSES | {"ForPreTraining": ("replaced",)},
    "albert": CLASSES | {"ForPreTraining": ("mlm", "sop")},
    # The reference has no class for answers.
    **dict.fromkeys(
        ("nomic_bert", "eurobert"),
        {ending: heads for ending, heads in CLASSES.items() if heads != ("answer",)},
    ),
}
SLOW_TURNS = {"rope_type": "default", "rope_theta": 160_000.0}
MPNET = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40, "vocab_size": 61,
    "max_position_embeddings": 300, "pad_token_id": 1,
}  # fmt: skip
# Names that DeBERTa's files have without `legacy: false`: the reference no longer gives them where we save.
LEGACY_NAMES = {
    "lm_predictions.lm_head.bias": "cls.predictions.bias",
    "lm_predictions.lm_head.": "cls.predictions.transform.",
}
# Two or more configurations of each family, of which the first shows most.
CONFIGS = {
    "distilbert": {
        "three heads": {
            "dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 40, "vocab_size": 61, "max_position_embeddings": 30,
        },
        "relu, untied": {
            "dim": 32, "n_layers": 3, "n_heads": 8, "hidden_dim": 20, "vocab_size": 97, "max_position_embeddings": 19,
            "activation": "relu", "tie_word_embeddings": False,
        },
    },
    "electra": {
        "narrow embeddings": {
            "embedding_size": 8, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
            "intermediate_size": 40, "vocab_size": 61, "type_vocab_size": 3, "max_position_embeddings": 30,
        },
        "equal widths, relu, untied": {
            "embedding_size": 32, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 8,
            "intermediate_size": 20, "vocab_size": 97, "type_vocab_size": 1, "max_position_embeddings": 19,
            "hidden_act": "relu", "tie_word_embeddings": False,
        },
    },
    "albert": {
        "one group": {
            "embedding_size": 8, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3,
            "intermediate_size": 40, "vocab_size": 61, "type_vocab_size": 3, "max_position_embeddings": 30,
        },
        "two groups, equal widths": {
            "embedding_size": 16, "hidden_size": 16, "num_hidden_layers": 4, "num_hidden_groups": 2,
            "num_attention_heads": 8, "intermediate_size": 20, "vocab_size": 97, "type_vocab_size": 1,
            "max_position_embeddings": 19, "hidden_act": "gelu",
        },
    },
    "modernbert": {
        "three heads, every second layer far": {
            "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 40,
            "vocab_size": 101, "max_position_embeddings": 40, "local_attention": 6, "pad_token_id": 0,
            "layer_types": ["full_attention", "sliding_attention"] * 2,
        },
        "mean, other thetas, odd window": {
            "hidden_size": 32, "num_hidden_layers": 5, "num_attention_heads": 8, "intermediate_size": 51,
            "vocab_size": 67, "max_position_embeddings": 64, "local_attention": 9, "pad_token_id": 0,
            "classifier_pooling": "mean",
            "hidden_activation": "silu", "classifier_activation": "relu",
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 77.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 9.0},
            },
        },
        "Ettin's settings": {
            "hidden_size": 28, "num_hidden_layers": 7, "num_attention_heads": 7, "intermediate_size": 37,
            "vocab_size": 131, "max_position_embeddings": 64, "local_attention": 6, "global_attn_every_n_layers": 3,
            "pad_token_id": 0, "classifier_pooling": "mean",
            "rope_parameters": {"full_attention": SLOW_TURNS, "sliding_attention": SLOW_TURNS},
        },
    },
    "eurobert": {
        "three queries to a key, every token read": {
            "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
            "intermediate_size": 40, "vocab_size": 101, "max_position_embeddings": 40, "pad_token_id": 0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 77.0},
        },
        "the first token read": {
            "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 8, "intermediate_size": 51,
            "vocab_size": 67, "max_position_embeddings": 64, "pad_token_id": 0, "classifier_pooling": "bos",
            "hidden_act": "gelu",
        },
    },
    "nomic_bert": {
        "three heads, three segments": {
            "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40,
            "vocab_size": 101, "type_vocab_size": 3, "max_position_embeddings": 40,
        },
        "one segment, narrow heads": {
            "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 8, "intermediate_size": 51,
            "vocab_size": 67, "type_vocab_size": 1, "max_position_embeddings": 64, "hidden_act": "gelu_new",
            "rope_parameters": {"rope_type": "default", "rope_theta": 77.0},
        },
    },
    "mpnet": {
        "one head": {
            "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 1, "intermediate_size": 20,
            "vocab_size": 47, "max_position_embeddings": 30, "layer_norm_eps": 1e-5, "hidden_act": "relu",
            "pad_token_id": 1,
        },
        "three heads": MPNET,
    },
    "deberta-v2": DEBERTA_V2_CONFIGS,
    "deberta": DEBERTA_CONFIGS,
}  # fmt: skip


def assert_parity(family: str, name: str, classes: dict, root) -> None:
    config = CONFIGS[family][name]
    old = LEGACY_NAMES if family.startswith("deberta") and config.get("legacy", True) else None
    assert_equals_transformers(FAMILIES[family].class_name, classes, config, root, old=old)


@pytest.mark.slow
@pytest.mark.parametrize("family", CONFIGS)
def test_pre_training_and_a_classifier_equal_transformers(family, tmp_path):
    classes = OTHER_CLASSES.get(family, CLASSES)
    shown = {ending: heads for ending, heads in classes.items() if heads and not {"tag", "answer"} & {*heads}}
    assert_parity(family, next(iter(CONFIGS[family])), shown, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "name"), [(family, name) for family in CONFIGS for name in CONFIGS[family]]
)
def test_every_class_equals_transformers(family, name, tmp_path):
    assert_parity(family, name, OTHER_CLASSES.get(family, CLASSES), tmp_path)


@pytest.mark.long
def test_tokens_of_mpnet_farther_apart_than_any_bucket_equal_transformers(tmp_path):
    assert_equals_transformers("MPNet", {"ForMaskedLM": ("mlm",)}, MPNET, tmp_path, length=150)


@pytest.mark.parametrize("name", ["bert", "distilbert", "electra", "albert", "eurobert"])
def test_absent_keys_mean_what_they_mean_to_the_reference(name):
    family = FAMILIES[name]
    theirs = transformers.AutoConfig.for_model(family.model_type).to_dict()
    assert family.read_config({}, "config.json") == family.read_config(theirs, "config.json")


# What a published size is known by.
FACTS = {
    "mpnet-base": {"max_position_embeddings": 512, "layer_norm_eps": 1e-5, "type_vocab_size": 0},
    "nomic-bert-base": {"rotary": RotaryConfig(1000.0), "gated": True},
    "jina-bert-base": {"positions": "alibi", "gated": True, "max_position_embeddings": 8192},
    "mosaic-bert-base": {"positions": "alibi", "gated": True, "attention_probs_dropout_prob": 0.0},
    "eurobert-610m": {"num_key_value_heads": 6, "rotary": RotaryConfig(250_000.0), "rms_norm": True},
    "mmbert-small": {"hidden_size": 384, "rotary": RotaryConfig(160_000.0, 160_000.0)},
    "ettin-32m": {"num_hidden_layers": 10, "hidden_size": 384, "intermediate_size": 576},
    "deberta-v3-xsmall": {"hidden_size": 384, "num_attention_heads": 6, "positions": "decoder"},
}


@pytest.mark.parametrize("size", FACTS)
def test_a_published_size_is_that_of_its_file(size):
    _, config = resolve_size(size)
    assert {name: getattr(config, name) for name in FACTS[size]} == FACTS[size]


def test_published_sizes_have_their_relative_terms():
    assert resolve_size("mpnet-base")[1].relative.buckets == 32
    assert resolve_size("deberta-v3-xsmall")[1].relative.span == 256
    assert (
        not resolve_size("deberta-base")[1].relative.key_bias
        and resolve_size("deberta-base")[1].relative.span == 512
    )
    assert resolve_size("deberta-v2-xlarge")[1].convolution.width == 3


# What keys mean, and where config.json leaves them out, beside those that the next test compares.
PRESENT = [
    ("modernbert", {}, {"local_attention": LocalAttentionConfig(64, 3), "rotary": RotaryConfig(160_000.0, 10_000.0)}),
    ("electra", {"hidden_size": 128}, {"embedding_size": 0}),
    ("modernbert", {"local_rope_theta": None, "global_rope_theta": 5e4}, {"rotary": RotaryConfig(5e4, 5e4)}),
    (
        "distilbert", {"dropout": 0.3, "qa_dropout": 0.4},
        {"hidden_dropout_prob": 0.3, "head_dropout": 0.2, "tag_dropout": 0.3, "answer_dropout": 0.4},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "published", "facts"), PRESENT)
def test_keys_and_their_absence_mean_what_they_mean_in_the_family(name, published, facts):
    config = FAMILIES[name].read_config(published, "config.json")
    assert {name: getattr(config, name) for name in facts} == facts


def test_absent_keys_of_modernbert_are_those_of_its_base():
    config = FAMILIES["modernbert"].read_config({}, "config.json")
    assert config == resolve_size("modernbert-base")[1].replace(vocab_size=50368)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DistilBertTokenizer", "ElectraTokenizer"])
@pytest.mark.parametrize("cased", [False, True])
def test_ids_and_offsets_of_a_released_vocabulary(name, cased, tmp_path):
    directory = write_wordpiece(tmp_path, cased)
    write_json(directory / "tokenizer_config.json", {"do_lower_case": not cased, "model_max_length": 512})
    counts = compare(open_tokenizer(directory), transformers_on(directory, name), MULTILINGUAL_TEXTS)
    assert (counts["ids"], counts["offsets"]) == (0, 0), counts["first"]


# DeBERTa's heads have other names in the reference, and MPNet's class takes long to make.
META = ("distilbert", "electra", "albert", "modernbert", "nomic_bert", "eurobert")


@pytest.mark.slow
@pytest.mark.parametrize(
    "size",
    long_except(
        [size for name in META for size in FAMILIES[name].sizes],
        [next(iter(FAMILIES[name].sizes)) for name in META],
    ),
)
def test_a_published_size_has_the_parameters_of_transformers(size):
    name, config = resolve_size(size)
    layout = Layout(config, FAMILIES[name], ("mlm",), pooler=False)
    shapes = layout.shapes()
    ours = {}
    for part in layout.parameter_mappings(prefixed=True):
        of_layer = part.tensor_shapes(shapes[part.path])
        names = part.all_tensor_names(layout.config.groups)
        ours |= {name: of_layer[i % len(of_layer)] for i, name in enumerate(names)}
    with torch.device("meta"):
        config = transformers.AutoConfig.for_model(**to_hf_config(layout))
        model = transformers.AutoModelForMaskedLM.from_config(config)
    assert ours == {name: tuple(p.shape) for name, p in model.named_parameters()}
