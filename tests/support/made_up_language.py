"""A made-up language for tests of the data: words and pieces whose ids anyone can look up."""

import functools
import random

from bert_jax.text.wordpiece import WordPiece

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"w{i}" for i in range(800)]
PIECES = [f"y{i}" for i in range(195)]
ENTRIES = [*SPECIAL, *WORDS, *("##" + piece for piece in PIECES)]
IDS = {entry: i for i, entry in enumerate(ENTRIES)}


def save_tokenizer(directory, entries=ENTRIES):
    WordPiece.from_vocabulary(entries).save(directory)
    return directory


@functools.cache
def random_documents(
    documents: int, seed: int, sentences: float = 12, words: int = 9
) -> list[list[list[str]]]:
    """Documents of sentences of words; a third of the words has one to three pieces after the first."""
    rng = random.Random(seed)
    words_of = [word + "".join(rng.choices(PIECES, k=k)) for word in WORDS for k in (0, 0, 0, 0, 1, 2)]

    def sentence():
        return rng.choices(words_of, k=rng.randint(1, 2 * words))

    return [[sentence() for _ in range(1 + int(rng.expovariate(1 / sentences)))] for _ in range(documents)]


def join_documents(documents: list[list[list[str]]]) -> str:
    """One sentence a line, blank lines between documents."""
    return (
        "\n\n".join("\n".join(" ".join(sentence) for sentence in document) for document in documents) + "\n"
    )


def token_ids(sentence: list[str]) -> list[int]:
    """Ids of a sentence, by hand."""
    out = []
    for word in sentence:
        first, *rest = word.replace("y", " y").split()
        out.extend([IDS[first], *(IDS["##" + piece] for piece in rest)])
    return out
