"""`bert-jax bench prepare`: speed from text to corpus, compared with the bare tokenizer on sentences already split.

The two take turns until the interval of their ratio is narrow.
"""

import tempfile
from dataclasses import asdict
from itertools import count
from pathlib import Path

import numpy as np

from bert_jax.bench.turns import Limits, Machine, Ratio, Turn, compared, describe, ratio, timed
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json
from bert_jax.data.corpus.chunks import CHUNK, cores
from bert_jax.data.corpus.prepare import prepare
from bert_jax.text.directory import open_tokenizer
from bert_jax.text.readers import Source
from bert_jax.text.sentences import sentences

BATCH = 4096  # sentences of a call of the bare tokenizer


def measure(source: Source, tokenizer: str, megabytes: float, limits: Limits, as_json: bool = False) -> str:
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
    rust = getattr(open_tokenizer(tokenizer), "rust", None)
    if rust is None:
        raise BertJaxError(
            f"{tokenizer} is not a tokenizer of the Rust library `tokenizers`, so there is nothing to compare with"
        )
    texts = [sentence for document in documents for sentence in sentences(document, source.layout, "en")]

    def bare() -> int:
        batches = (texts[first : first + BATCH] for first in range(0, len(texts), BATCH))
        encodings = (rust.encode_batch_fast(batch, add_special_tokens=False) for batch in batches)
        return sum(len(encoding) for batch in encodings for encoding in batch)

    machine = Machine()
    with tempfile.TemporaryDirectory() as directory:
        text = Path(directory, "text.txt")
        pages = ("\n".join(line for line in document.split("\n") if line.strip()) for document in documents)
        text.write_text("\n\n".join(pages), encoding="utf-8")

        def whole(turn: int) -> int:
            manifest = prepare(Source([str(text)]), tokenizer, Path(directory, str(turn)), heldout=0)
            return manifest["counts"]["train"]["tokens"]

        contenders = {"prepare": lambda turn: timed(whole, turn), "bare": lambda turn: timed(bare)}
        turns: dict[str, list[Turn]] = {name: [] for name in contenders}
        rates: dict[str, list[float]] = {name: [] for name in contenders}
        calls = ((number,) for number in count())
        # A corpus adds tokens, so the numbers of tokens differ: compare the time per token.
        for name, tokens, turn in compared(
            contenders, calls, limits, lambda tokens, turn: turn.seconds / tokens
        ):
            turns[name].append(turn)
            rates[name].append(tokens / turn.seconds / 1e6)
    results = {
        "megabytes": size / 1e6,
        "sentences": len(texts),
        "of": {
            name: {
                "million_tokens_per_second": float(np.median(rates[name])),
                "cpu_seconds": float(np.mean([turn.cpu for turn in turns[name]])),
            }
            for name in contenders
        },
        "ratio": asdict(ratio(*([1 / rate for rate in of_one] for of_one in rates.values()))),
        "machine": machine.during([turn for several in turns.values() for turn in several]),
    }
    return to_json(results) if as_json else in_words(results)


def in_words(results: dict) -> str:
    lines = [f"{results['megabytes']:.0f} MB of text, {results['sentences']:,} sentences, {cores()} cores"]
    for name, measured in results["of"].items():
        rate, cpu = measured["million_tokens_per_second"], measured["cpu_seconds"]
        lines.append(f"{name:8} {rate:5.2f} M tokens/s, {cpu:.1f} s of CPU")
    speed = Ratio(**results["ratio"])
    lines.append(f"prepare is {speed} times as fast as the bare encode_batch_fast, {speed.rounds} rounds")
    return "\n".join([*lines, describe(results["machine"])])
