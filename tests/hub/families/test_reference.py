"""The families beside transformers: each class with its heads, two odd configurations, directories both ways."""

import math

import pytest

from bert_jax.hub.families import FAMILIES
from bert_jax.hub.layout import Layout
from bert_jax.text.directory import open_tokenizer
from tests.bench.tokenizers import compare, transformers_on
from tests.support.parity import FINE_TUNED_HEADS, assert_equals_transformers
from tests.support.vocabularies import MULTILINGUAL_TEXTS, write_json, write_wordpiece

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

CLASSES = {
    "distilbert": {"Model": (), "ForMaskedLM": ("mlm",), **FINE_TUNED_HEADS},
    "electra": {"Model": (), "ForMaskedLM": ("mlm",), "ForPreTraining": ("replaced",), **FINE_TUNED_HEADS},
    "albert": {"Model": (), "ForMaskedLM": ("mlm",), "ForPreTraining": ("mlm", "sop"), **FINE_TUNED_HEADS},
    "modernbert": {"Model": (), "ForMaskedLM": ("mlm",), **FINE_TUNED_HEADS},
    "nomic_bert": {"Model": (), "ForMaskedLM": ("mlm",), **FINE_TUNED_HEADS},
}
del CLASSES["nomic_bert"]["ForQuestionAnswering"]  # which the reference lacks
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
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "name"),
    [
        pytest.param(family, name, marks=[pytest.mark.long] if n else [])  # the first shows most of it
        for family in CONFIGS
        for n, name in enumerate(CONFIGS[family])
    ],
)
def test_equals_transformers(family, name, tmp_path):
    assert_equals_transformers(FAMILIES[family].class_name, CLASSES[family], CONFIGS[family][name], tmp_path)


@pytest.mark.parametrize("name", ["bert", "distilbert", "electra", "albert"])
def test_absent_keys_mean_what_they_mean_to_the_reference(name):
    family = FAMILIES[name]
    theirs = transformers.AutoConfig.for_model(family.model_type).to_dict()
    assert family.read_config({}, "config.json") == family.read_config(theirs, "config.json")


# Of the encoders that people download, without pooler and heads.
PARAMETERS = {
    "distilbert-base": 66_362_880, "electra-small": 13_483_008, "electra-base": 108_891_648,
    "electra-large": 334_092_288, "albert-base": 11_092_992, "albert-large": 16_634_368,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("size", PARAMETERS)
def test_a_published_size_has_as_many_parameters_as_its_files(size):
    family = FAMILIES[size.split("-")[0]]
    config = family.sized(size).replace(vocab_size=30000 if "albert" in size else 30522)
    shapes = Layout(config, family, pooler=False).shapes()
    assert sum(map(math.prod, shapes.values())) == PARAMETERS[size]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DistilBertTokenizer", "ElectraTokenizer"])
@pytest.mark.parametrize("cased", [False, True])
def test_ids_and_offsets_of_a_released_vocabulary(name, cased, tmp_path):
    directory = write_wordpiece(tmp_path, cased)
    write_json(directory / "tokenizer_config.json", {"do_lower_case": not cased, "model_max_length": 512})
    counts = compare(open_tokenizer(directory), transformers_on(directory, name), MULTILINGUAL_TEXTS)
    assert (counts["ids"], counts["offsets"]) == (0, 0), counts["first"]


@pytest.mark.slow
@pytest.mark.parametrize("size", [size for name in CONFIGS for size in FAMILIES[name].sizes])
def test_a_published_size_has_the_parameters_of_transformers(size):
    family = next(FAMILIES[name] for name in CONFIGS if size in FAMILIES[name].sizes)
    layout = Layout(family.sized(size), family, ("mlm",), pooler=False)
    shapes = layout.shapes()
    ours = {}
    for part in layout.parts(prefixed=True):
        of_layer = part.shapes(shapes[part.ours])
        names = part.published(layout.config.groups)
        ours |= {name: of_layer[i % len(of_layer)] for i, name in enumerate(names)}
    with torch.device("meta"):
        config = transformers.AutoConfig.for_model(**layout.published_config())
        model = transformers.AutoModelForMaskedLM.from_config(config)
    assert ours == {name: tuple(p.shape) for name, p in model.named_parameters()}
