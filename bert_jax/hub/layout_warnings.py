"""Find what is wrong or odd about the tokenizer of a model directory, before anything runs."""

from bert_jax.core.errors import BertJaxError
from bert_jax.hub.model_directory import ModelDirectory
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.wordpiece import share_with_capitals


def layout_warnings(directory: ModelDirectory) -> list[str]:
    """Raise if tokenizer and weights cannot belong together; return a line for each thing that is merely odd."""
    tokenizer, where = directory.tokenizer, directory.name
    size, vocab_size = tokenizer.size, directory.layout.config.vocab_size
    if size > vocab_size:
        raise BertJaxError(
            f"{where}: the tokenizer has ids up to {size - 1}, the embedding only {vocab_size} rows; "
            "this is another model's tokenizer"
        )
    notes = []
    if size < vocab_size:
        notes.append(f"{where}: {vocab_size - size} of {vocab_size} embedding rows have no token")
    # A few capitals do not make a vocabulary cased; in a cased one, a third of the entries have capitals.
    if lowercases_text(tokenizer) and share_with_capitals(tokenizer.tokens(range(size))) > 0.01:
        notes.append(
            f"{where}: the vocabulary is cased, yet its tokenizer lower-cases texts: capitals are lost; "
            'write {"do_lower_case": false} into tokenizer_config.json if the model is cased'
        )
    return notes


def lowercases_text(tokenizer: Tokenizer) -> bool:
    upper, lower = tokenizer.ids(["The House", "the house"])
    return upper == lower
