"""`prepare`: speed from text to corpus, compared with the bare tokenizer on sentences already split."""

import tempfile
from itertools import count
from pathlib import Path

import numpy as np

from bert_jax.bench.timing import Machine, Turn, timed
from bert_jax.core.errors import BertJaxError
from bert_jax.data.corpus.chunks import CHUNK
from bert_jax.data.corpus.prepare import prepare_corpus
from bert_jax.text.sentences import split_sentences
from bert_jax.text.text_source import TextSource
from bert_jax.text.tokenizer_directory import open_tokenizer
from tests.bench.comparison import Comparison, Row, dtype_ratios
from tests.bench.turns import OURS, Limits, interleaved

BATCH = 4096  # sentences of a call of the bare tokenizer
BARE = "the bare tokenizer"


def compare_prepare(source: TextSource, tokenizer: str, megabytes: float, limits: Limits) -> Comparison:
    documents: list[str] = []
    size = 0
    for document in source.documents():
        documents.append(document)
        size += len(document)
        if size >= megabytes * 1e6:
            break
    if size < 2 * CHUNK:
        raise BertJaxError(
            f"{size / 1e6:.1f} MB of text is too little to measure; give at least {CHUNK >> 19} MB"
        )
    rust = open_tokenizer(tokenizer).rust
    texts = [
        sentence for document in documents for sentence in split_sentences(document, source.layout, "en")
    ]

    def count_tokens() -> int:
        batches = (texts[first : first + BATCH] for first in range(0, len(texts), BATCH))
        encodings = (rust.encode_batch_fast(batch, add_special_tokens=False) for batch in batches)
        return sum(len(encoding) for batch in encodings for encoding in batch)

    machine = Machine()
    with tempfile.TemporaryDirectory() as directory:
        text = Path(directory, "text.txt")
        pages = ("\n".join(line for line in document.split("\n") if line.strip()) for document in documents)
        text.write_text("\n\n".join(pages), encoding="utf-8")

        def make_corpus(turn: int) -> int:
            manifest = prepare_corpus(
                TextSource([str(text)]), tokenizer, Path(directory, str(turn)), validation_ratio=0
            )
            return manifest["counts"]["train"]["tokens"]

        contenders = {OURS: lambda turn: timed(make_corpus, turn), BARE: lambda turn: timed(count_tokens)}
        turns: list[Turn] = []
        seconds: dict[str, list[float]] = {name: [] for name in contenders}
        calls = interleaved(contenders, ((number,) for number in count()), limits, seconds_per_token)
        for name, tokens, turn in calls:
            turns.append(turn)
            seconds[name].append(seconds_per_token(tokens, turn))
    ours, bare = (f"{1e-6 / np.median(rounds):.2f}" for rounds in seconds.values())
    ratios = {"float32": dtype_ratios(seconds, BARE)[OURS]}
    row = Row("text to corpus", {"float32": ours}, f"{BARE} {bare}", ratios, "M tokens/s")
    return Comparison([row], machine.load_during(turns))


def seconds_per_token(tokens: int, turn: Turn) -> float:
    """A corpus adds tokens, so the numbers of tokens differ."""
    return turn.seconds / tokens
