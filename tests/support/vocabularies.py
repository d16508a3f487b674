"""Small vocabularies of every kind, made from a few sentences in several scripts."""

import json
from pathlib import Path

from tokenizers import Tokenizer

SENTENCES = (
    "The quick brown fox jumps over the lazy dog, 1,000 times in 2023-24 (or more).",
    "Playing unplayable players replayed the play; it's \"quoted\" -- don't worry!",
    "Überraschend fällt Schnee über die Straße: 5-mal, 16, 23–16. In 16, 16, 16, 23, 23, 23, 16, 16, 23, mal.",
    "Le café naïf coûte 3,50 € à l'île. Señor Ñandú tomó el té.",
    "東京は日本の首都です。中文文本没有空格。한국어 문장입니다.",
    "Привет, мир! Καλημέρα κόσμε. שלום עולם. مرحبا بالعالم. नमस्ते दुनिया.",
)
ADVERSARIAL = (
    "",
    " \n\t\u3000\u2028",
    "a\x00b\x07c\u200bd\ufeffe\x7f",
    "lone \ud800 surrogate \udfff s\udc00",
    "👩‍👩‍👧 🇩🇪 👍🏽 ☺️",
    "e\u0301 u\u0308\u0304 \u0301alone z" + "\u0301" * 20,
    "ß ẞ İ ı Ǆ ﬁ Σ ς K Å ½ ① ㎏ ﷺ … ™",
    "中文かな한글𠀀｡ｱﾞＡｂ१ กำลัง",
    "``quoted'' 1,000,000.50 16, 9,9 -5 (a) [b]",
    "[CLS] [MASK] x[MASK]y [SEP] <s> <mask> a <mask>b </s>",
    "##ing ▁ ▁word a▁b Ġ",
    "x" * 100_000,
    "the " * 5_000,
    "a" * 99 + " " + "a" * 100 + " " + "a" * 101,
)
MULTILINGUAL_TEXTS = (*SENTENCES, *ADVERSARIAL, *(f"{a} {b}" for a in SENTENCES for b in SENTENCES))


def write_wordpiece(directory: Path, cased: bool = False) -> Path:
    text = " ".join(SENTENCES)
    text = text if cased else text.lower()
    characters = sorted({c for c in text if c.strip()})
    words = [
        "the",
        "quick",
        "play",
        "##ing",
        "##ed",
        "##er",
        "##s",
        "un",
        "##able",
        "café",
        "cafe",
        "over",
        "schnee",
    ]
    words += ["The", "Playing", "Schnee"] if cased else []
    entries = [
        "[PAD]",
        "[unused0]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *characters,
        *(f"##{c}" for c in characters),
    ]
    directory.mkdir(parents=True, exist_ok=True)
    lines = dict.fromkeys([*entries, *words])
    (directory / "vocab.txt").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return directory


def write_mpnet(directory: Path, cased: bool = False) -> Path:
    """MPNet's vocabulary: RoBERTa's special tokens around BERT's entries."""
    path = write_wordpiece(directory, cased) / "vocab.txt"
    entries = path.read_text(encoding="utf-8").split("\n")[:-1]
    lines = ["<s>", "<pad>", "</s>", "<unk>", *entries, "<mask>"]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return directory


def write_bytepair(directory: Path, special=("<s>", "<pad>", "</s>", "<unk>", "<mask>")) -> Path:
    from tokenizers import ByteLevelBPETokenizer

    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(
        SENTENCES * 3, vocab_size=400, special_tokens=list(special), show_progress=False
    )
    directory.mkdir(parents=True, exist_ok=True)
    trained.save_model(str(directory))
    return directory


def write_modernbert(directory: Path) -> Path:
    """Byte-level BPE between special tokens of BERT's names, in one file as ModernBERT is published."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    from bert_jax.text.tokenizer import BERT_NAMES, template_processor

    rust = Tokenizer(models.BPE())
    rust.normalizer = normalizers.NFC()
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    rust.train_from_iterator(SENTENCES * 3, trainer)
    # Spaces in a row are entries of their own, as in the published file.
    rust.add_tokens([AddedToken(" " * n, normalized=True) for n in range(4, 1, -1)])
    names = [name for role, name in BERT_NAMES.items() if role != "mask"]
    mask = AddedToken(BERT_NAMES["mask"], lstrip=True, special=True, normalized=False)
    rust.add_special_tokens([*names, mask])
    ids = {role: rust.token_to_id(name) for role, name in BERT_NAMES.items()}
    rust.post_processor = template_processor(BERT_NAMES, ids)
    return save_tokenizer_json(rust, directory, BERT_NAMES)


def save_tokenizer_json(rust: Tokenizer, directory: Path, roles: dict[str, str]) -> Path:
    """Write tokenizer.json, and the names of special tokens by their roles."""
    directory.mkdir(parents=True, exist_ok=True)
    rust.save(str(directory / "tokenizer.json"))
    settings = {f"{role}_token": name for role, name in roles.items()}
    inputs = ["input_ids", "attention_mask"]
    write_json(
        directory / "tokenizer_config.json",
        settings | {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs},
    )
    return directory


def write_sentencepiece(directory: Path, convention: str) -> Path:
    """A `.model` with ALBERT's special pieces and user-defined ones, with DeBERTa's and bytes, or with the three that
    XLM-R's file has."""
    from sentencepiece import SentencePieceTrainer

    albert = {
        "pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
        "user_defined_symbols": ["(", ")", "-"],
        # As in Google's: pieces such as "16," are learned, and its tokenizer takes them apart again.
        "split_by_unicode_script": False, "split_by_number": False,
    }  # fmt: skip
    deberta = {
        "pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "pad_piece": "[PAD]", "bos_piece": "[CLS]",
        "eos_piece": "[SEP]", "unk_piece": "[UNK]", "byte_fallback": True, "character_coverage": 0.98,
        "vocab_size": 600,
    }  # fmt: skip
    directory.mkdir(parents=True, exist_ok=True)
    name, options = {
        "albert": ("spiece.model", albert),
        "deberta": ("spm.model", deberta),
        "xlm-roberta": ("sentencepiece.bpe.model", {}),
    }[convention]
    with open(directory / name, "wb") as file:
        SentencePieceTrainer.train(
            sentence_iterator=iter([s if convention != "albert" else s.lower() for s in SENTENCES] * 3),
            model_writer=file, hard_vocab_limit=False, minloglevel=2,
            **{"vocab_size": 330, "character_coverage": 1.0} | options,
        )  # fmt: skip
    return directory


def write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
