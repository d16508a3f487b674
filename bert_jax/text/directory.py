"""Opens whichever tokenizer a model directory carries."""

from pathlib import Path

from tokenizers import Tokenizer as Rust
from tokenizers import models

from bert_jax.errors import BertJaxError
from bert_jax.text.settings import Settings
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.wordpiece import WordPiece


def open_tokenizer(directory) -> Tokenizer:
    """The tokenizer of a directory, tokenizer.json first because it alone holds everything."""
    directory = Path(directory)
    settings = Settings.read(directory)
    try:
        if (directory / "tokenizer.json").is_file():
            return _from_json(directory / "tokenizer.json", settings)
        if (directory / "vocab.txt").is_file():
            return WordPiece.from_vocab_txt(directory / "vocab.txt", settings)
    except UnicodeDecodeError as error:
        raise BertJaxError(f"{directory}: vocabulary not in UTF-8 ({error}); fetch it again") from error
    except BertJaxError as error:
        said = str(error)
        raise BertJaxError(said if said.startswith(str(directory)) else f"{directory}: {said}") from error
    raise BertJaxError(
        f"{directory}: no tokenizer there; it needs tokenizer.json or vocab.txt beside config.json"
    )


def _from_json(path: Path, settings: Settings) -> Tokenizer:
    try:
        rust = Rust.from_file(str(path))
    except Exception as error:  # the Rust library raises bare Exception
        raise BertJaxError(f"{path}: not a tokenizer.json ({error}); fetch the file again") from error
    if isinstance(rust.model, models.WordPiece):
        return WordPiece.from_rust(rust, settings)
    kind = type(rust.model).__name__
    raise BertJaxError(f"{path}: holds a {kind} model, which no BERT-like model here reads")
