"""SentencePiece's unigram models, with the conventions of ALBERT, DeBERTa and XLM-R.

The pieces are read from the `.model` file. The Rust library splits texts into them; it gives the same ids as the
`sentencepiece` library, and also offsets into the original text.
"""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Rust
from tokenizers import decoders, models, normalizers, pre_tokenizers

from bert_jax.core.errors import BertJaxError
from bert_jax.text.tokenizer import (
    BERT_FORM,
    BERT_NAMES,
    ROBERTA_FORM,
    ROBERTA_NAMES,
    Tokenizer,
    template_processor,
)
from bert_jax.text.tokenizer_settings import TokenizerSettings

MODEL_FILES = ("spiece.model", "sentencepiece.bpe.model", "spm.model", "tokenizer.model")
ALBERT_NAMES = BERT_NAMES | {"pad": "<pad>", "unk": "<unk>"}
UNIGRAM = 1  # value of model_type in the file
SPLIT_LATER = -100.0  # a score so low that a piece is never part of the best segmentation


class SentencePiece(Tokenizer):
    @classmethod
    def from_model(cls, path, settings: TokenizerSettings | None = None) -> "SentencePiece":
        """Build the tokenizer from a `.model` file; its special pieces show whose convention it follows: with [CLS] it
        is ALBERT's, with [PAD] as well DeBERTa's, with <s> XLM-R's."""
        settings = settings or TokenizerSettings()
        proto = read_sentencepiece_model(Path(path))
        pieces = [piece.piece for piece in proto.pieces]
        if {"[PAD]", "[CLS]"} <= set(pieces):
            build = _deberta
        elif "[CLS]" in pieces:
            build = _albert
        elif pieces[:3] == ["<unk>", "<s>", "</s>"] and "<cls>" not in pieces:
            build = _xlm_roberta
        else:
            raise BertJaxError(
                f"{path}: its pieces ({', '.join(pieces[:5])}, ...) follow neither ALBERT's convention nor DeBERTa's "
                "nor XLM-R's; put a tokenizer.json into the model directory instead (transformers writes one)"
            )
        if proto.trainer_spec.byte_fallback and build != _deberta:
            raise BertJaxError(
                f"{path}: byte fallback is supported only in DeBERTa's files; "
                "put a tokenizer.json into the model directory instead"
            )
        rust, names, form = build(proto, settings)
        ids = {role: rust.token_to_id(name) for role, name in names.items()}
        if None not in ids.values():  # Tokenizer reports missing ones
            rust.post_processor = template_processor(names, ids, form)
        spaces = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
        rust.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), spaces])
        of_spaces = decoders.Metaspace(replacement="▁", prepend_scheme="always")
        in_bytes = proto.trainer_spec.byte_fallback
        rust.decoder = decoders.Sequence([decoders.ByteFallback(), of_spaces]) if in_bytes else of_spaces
        return cls(rust, names, settings)


def read_sentencepiece_model(path: Path):
    """Read the file as a `sentencepiece` message; refuse a model that the Rust library would apply differently."""
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2

    messages: Any = sentencepiece_model_pb2  # its classes are made when it is imported
    proto = messages.ModelProto()
    try:
        proto.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise BertJaxError(f"{path}: not a SentencePiece model ({error}); fetch the file again") from error
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    odd = {
        "not a unigram model": trainer.model_type != UNIGRAM,
        "no dummy prefix": not normalizer.add_dummy_prefix,
        "extra whitespace kept": not normalizer.remove_extra_whitespaces,
        "whitespace behind words": trainer.treat_whitespace_as_suffix,
        "no pieces": not proto.pieces,
    }
    if any(odd.values()):
        features = ", ".join(name for name, present in odd.items() if present)
        raise BertJaxError(
            f"{path}: not supported ({features}); put a tokenizer.json into the model directory instead"
        )
    return proto


def _albert(proto, settings: TokenizerSettings):
    # Google's ALBERT splits a number from the comma after it, so pieces of both never occur in its training data.
    entries = [
        (piece.piece, SPLIT_LATER if piece.piece[-1] == "," and piece.piece[-2:-1].isdigit() else piece.score)
        for piece in proto.pieces
    ]
    names = ALBERT_NAMES | settings.names
    rust = Rust(models.Unigram(entries, unk_id=proto.trainer_spec.unk_id, byte_fallback=False))
    steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not settings.config.get("keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if settings.config.get("do_lower_case", True):
        steps.append(normalizers.Lowercase())
    rust.normalizer = normalizers.Sequence(steps + _charsmap(proto))
    return rust, names, BERT_FORM


def _deberta(proto, settings: TokenizerSettings):
    """Normalise texts by the rules of the file, and encode unknown characters as bytes; transformers does neither."""
    if settings.config.get("split_by_punct", False):
        raise BertJaxError(
            "split_by_punct = true is not supported; put a tokenizer.json into the model directory instead"
        )
    names = BERT_NAMES | settings.names
    entries = [(piece.piece, piece.score) for piece in proto.pieces]
    if names["mask"] not in {piece for piece, _ in entries}:
        entries.append((names["mask"], 0.0))
    spec = proto.trainer_spec
    rust = Rust(models.Unigram(entries, unk_id=spec.unk_id, byte_fallback=spec.byte_fallback))
    steps: list = [normalizers.Lowercase()] * bool(settings.config.get("do_lower_case", False))
    if "nfkc" in proto.normalizer_spec.name:
        steps.append(normalizers.NFC())  # the Rust library reads the file's rules for one letter at a time
    rust.normalizer = normalizers.Sequence(steps + _charsmap(proto))
    return rust, names, BERT_FORM


def _xlm_roberta(proto, settings: TokenizerSettings):
    # fairseq's dictionary begins with these four entries instead of the file's first three, and ends with <mask>.
    names = ROBERTA_NAMES | settings.names
    entries = [(names[role], 0.0) for role in ("cls", "pad", "sep", "unk")]
    entries += [(piece.piece, piece.score) for piece in proto.pieces[3:]] + [(names["mask"], 0.0)]
    rust = Rust(models.Unigram(entries, unk_id=3, byte_fallback=False))
    rust.normalizer = normalizers.Sequence(_charsmap(proto))
    return rust, names, ROBERTA_FORM


def _charsmap(proto) -> list:
    charsmap = proto.normalizer_spec.precompiled_charsmap
    return [normalizers.Precompiled(charsmap)] if charsmap else []
