"""Small directories in the layout of BGE-M3."""

import json
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers

from bert_jax.hub.m3_encoder import make_settings
from bert_jax.hub.sentence_transformers import EmbedderSettings, write_embedder
from bert_jax.text.tokenizer import template_processor
from tests.support.optional_modules import torch
from tests.support.small_models import write_model
from tests.support.transformers_models import save_transformers_model
from tests.support.vocabularies import save_tokenizer_json

NAMES = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>"}
WORDS = ("the", "cat", "sat", "on", "a", "mat", ".", "dog", "ran")
ENTRIES = [*NAMES.values(), *(f"▁{word}" for word in WORDS), "<mask>"]
M3_TEXTS = [
    "the cat sat on the mat .",
    "a dog ran",
    "the the cat the",
    "snow",
    "",
    "cat <s> mat </s>",
    "mat . " * 6,
]
SIZES = {"num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 40}
SETTINGS = make_settings(EmbedderSettings(pooling="cls"), 6)


def write_small_m3(path: Path, **changes):
    """A BERT with the two layers, saved here."""
    return write_model(path, heads=(), pooler=False, m3=SETTINGS, embedder=SETTINGS.embedder, **changes)


def write_published_m3(path: Path, tokens: int = 10, modules: bool = True) -> Path:
    """An XLM-R as FlagEmbedding saves it, whose tokens have vectors of this width; with `modules`, also the files of
    sentence-transformers."""
    rust = Tokenizer(models.Unigram([(entry, -1.0) for entry in ENTRIES], unk_id=ENTRIES.index("<unk>")))
    rust.pre_tokenizer = pre_tokenizers.Metaspace()
    roles = NAMES | {"mask": "<mask>"}
    rust.add_special_tokens([*roles.values()])
    rust.post_processor = template_processor(
        roles, {role: ENTRIES.index(name) for role, name in roles.items()}
    )
    save_transformers_model(
        "XLMRobertaModel", path, vocab_size=len(ENTRIES), type_vocab_size=1, max_position_embeddings=34, pad_token_id=1,
        bos_token_id=0, eos_token_id=2, **SIZES,
    )  # fmt: skip
    save_tokenizer_json(rust, path, roles)
    file = path / "tokenizer_config.json"
    named = {"bos_token": "<s>", "eos_token": "</s>", "model_max_length": 32}
    file.write_text(json.dumps(json.loads(file.read_text()) | named))
    torch.manual_seed(0)
    for name, width in (("colbert_linear", tokens), ("sparse_linear", 1)):
        layer = torch.nn.Linear(SIZES["hidden_size"], width)
        if name == "sparse_linear":
            torch.nn.init.constant_(layer.bias, 0.9)  # so that some weights are positive, and some not
        torch.save(layer.state_dict(), path / f"{name}.pt")
    if modules:
        write_embedder(path, EmbedderSettings(max_length=16, pooling="cls"), SIZES["hidden_size"])
    return path
