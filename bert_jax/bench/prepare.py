"""`bert-jax bench prepare`: text to corpus, beside the bare tokenizer on sentences that are split already.

The two take turns, three times each; the medians are compared.
"""

import statistics
import tempfile
from pathlib import Path

from bert_jax.bench.turns import Machine, describe, in_turn, timed
from bert_jax.data.corpus.chunks import CHUNK, cores
from bert_jax.data.corpus.prepare import prepare
from bert_jax.errors import BertJaxError
from bert_jax.text.directory import open_tokenizer
from bert_jax.text.readers import Layout, Source
from bert_jax.text.sentences import sentences

TURNS = 3
BATCH = 4096  # sentences that the bare tokenizer gets at once


def measure(inputs: list[str], tokenizer: str, megabytes: float, layout: Layout, column: str) -> str:
    documents: list[str] = []
    size = 0
    for document in Source(inputs, layout, column).documents():
        documents.append(document)
        size += len(document)
        if size >= megabytes * 1e6:
            break
    if size < 2 * CHUNK:
        raise BertJaxError(
            f"{size / 1e6:.1f} MB of text are too few to measure on; give {CHUNK >> 19} MB or more"
        )
    rust = getattr(open_tokenizer(tokenizer), "rust", None)
    if rust is None:
        raise BertJaxError(f"{tokenizer} is not a tokenizer of the Rust library, the one to compare with")
    texts = [sentence for document in documents for sentence in sentences(document, layout, "en")]

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

        contenders = {"bare": lambda turn: timed(bare), "prepare": lambda turn: timed(whole, turn)}
        calls = list(in_turn(contenders, [(n,) for n in range(TURNS)]))
    turns = [turn for _, _, turn in calls]
    rates = [tokens / turn.seconds / 1e6 for _, tokens, turn in calls]
    alone, ours = (statistics.median(rates[n::2]) for n in range(2))
    each_turn = ", ".join(f"{rate:.2f}" for rate in rates)
    cpu = [sum(turn.cpu for turn in turns[n::2]) / TURNS for n in range(2)]
    return (
        f"{size / 1e6:.0f} MB of text, {len(texts):,} sentences, {cores()} cores\n"
        f"bare encode_batch_fast  {alone:5.2f} M tokens/s, {cpu[0]:.1f} s of CPU\n"
        f"prepare                 {ours:5.2f} M tokens/s, {ours / alone:.2f} x bare, {cpu[1]:.1f} s of CPU\n"
        f"(M tokens/s of each turn, bare then prepare: {each_turn})\n{describe(machine.during(turns))}"
    )
