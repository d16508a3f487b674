"""Open the tokenizer of a model directory, of whichever kind it is."""

from pathlib import Path

from tokenizers import Tokenizer as Rust
from tokenizers import models

from bert_jax.core.errors import BertJaxError
from bert_jax.text.byte_level_bpe import ByteLevelBPE
from bert_jax.text.sentencepiece import MODEL_FILES, SentencePiece
from bert_jax.text.static_tokenizer import StaticTokenizer
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.tokenizer_settings import TokenizerSettings
from bert_jax.text.wordpiece import WordPiece

TOKENIZERS = {models.WordPiece: WordPiece, models.BPE: ByteLevelBPE, models.Unigram: SentencePiece}


def holds_tokenizer(directory: Path) -> bool:
    names = ("tokenizer.json", "vocab.txt", "vocab.json", *MODEL_FILES)
    return any((directory / name).is_file() for name in names)


def open_tokenizer(directory) -> Tokenizer:
    """Open the tokenizer of a directory; tokenizer.json comes first because only that file holds everything."""
    directory = Path(directory)
    settings = TokenizerSettings.from_directory(directory)
    try:
        if StaticTokenizer.saved_in(settings):
            return StaticTokenizer.from_directory(directory, settings)
        if (directory / "tokenizer.json").is_file():
            return _open_tokenizer_json(directory / "tokenizer.json", settings)
        if (directory / "vocab.txt").is_file():
            return WordPiece.from_vocab_txt(directory / "vocab.txt", settings)
        if (directory / "vocab.json").is_file():
            if not (directory / "merges.txt").is_file():
                raise BertJaxError("vocab.json without merges.txt; fetch the file that belongs to it")
            return ByteLevelBPE.from_vocab_json(directory / "vocab.json", directory / "merges.txt", settings)
        for name in MODEL_FILES:
            if (directory / name).is_file():
                return SentencePiece.from_model(directory / name, settings)
    except UnicodeDecodeError as error:
        raise BertJaxError(f"{directory}: vocabulary not in UTF-8 ({error}); fetch it again") from error
    except BertJaxError as error:
        location = "" if str(error).startswith(str(directory)) else f"{directory}: "
        raise BertJaxError(f"{location}{error}") from error
    files = ", ".join(("tokenizer.json", "vocab.txt", "vocab.json and merges.txt", *MODEL_FILES))
    of_model = "" if (directory / "config.json").is_file() else " and no config.json"
    raise BertJaxError(f"{directory}: no tokenizer{of_model}; it needs one of {files}")


def _open_tokenizer_json(path: Path, settings: TokenizerSettings) -> Tokenizer:
    try:
        rust = Rust.from_file(str(path))
    except Exception as error:  # the Rust library raises bare Exception
        raise BertJaxError(f"{path}: not a tokenizer.json ({error}); fetch the file again") from error
    for model, tokenizer_class in TOKENIZERS.items():
        if isinstance(rust.model, model):
            return tokenizer_class.from_rust(rust, settings)
    name = type(rust.model).__name__
    raise BertJaxError(f"{path}: holds a {name} model, which is not supported; use WordPiece, BPE or Unigram")
