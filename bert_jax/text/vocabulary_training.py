"""Train vocabularies on text: WordPiece, with BERT's special tokens at BERT's ids, and SentencePiece.

The same text gives the same vocabulary, whatever the number of threads.
"""

import hashlib
import io
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from tokenizers import Tokenizer as Rust
from tokenizers import models, trainers

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import write_json
from bert_jax.core.output import atomic_directory
from bert_jax.core.terminal import pluralize
from bert_jax.text.text_source import TextSource
from bert_jax.text.tokenizer import BERT_NAMES, Tokenizer
from bert_jax.text.tokenizer_directory import open_tokenizer
from bert_jax.text.wordpiece import WordPiece

DEFAULT_SIZE = 30522  # BERT's
COVERAGE = 0.9999  # share of the characters in the text that the alphabet covers; rarer ones become [UNK]
HELD_OUT = 200  # one line in this many is kept out of training, to measure the vocabulary
MEASURED = 20_000  # at most this many lines are measured
SPECIAL = list(BERT_NAMES.values())
UNUSED = 99  # unused entries of BERT's vocabulary below [UNK] = 100
MORE_UNUSED = 895  # unused entries above [MASK] = 103; small vocabularies do without them
LARGE = 1 << 14


@dataclass
class TrainingLines:
    """The lines of a source: iteration yields those to train on, and collects the others in `held_out`."""

    source: TextSource
    held_out: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[str]:
        self.held_out = []
        for document in self.source.documents():
            for line in document.split("\n"):
                if not line.strip():
                    continue
                # Chosen by hash, so that a repeated line is not both trained on and measured.
                chosen = hashlib.blake2b(line.encode("utf-8", "replace"), digest_size=8).digest()
                if int.from_bytes(chosen, "little") % HELD_OUT == 0 and len(self.held_out) < MEASURED:
                    self.held_out.append(line)
                else:
                    yield line


def train_vocabulary(
    source: TextSource, output, *, kind: str = "wordpiece", size: int = DEFAULT_SIZE, cased: bool = False
) -> str:
    """Train a vocabulary, write its directory, and return a summary for users."""
    output = Path(output)
    lines = TrainingLines(source)
    train = {"wordpiece": train_wordpiece, "sentencepiece": train_sentencepiece}[kind]
    with atomic_directory(output) as new:
        tokenizer = train(lines, size, cased, new)
    summary = [f"{output}: {kind}, {tokenizer.size:,} entries, {'cased' if cased else 'lower case'}"]
    if tokenizer.size < size:
        summary.append(f"  fewer than the {size:,} asked for: the text is too small for more")
    if source.broken_lines:
        summary.append(
            f"  {pluralize(source.broken_lines, 'line')} of broken UTF-8, bad bytes replaced by \ufffd"
        )
    return "\n".join([*summary, measure_vocabulary(tokenizer, lines.held_out)])


def reserved_entries(size: int) -> list[str]:
    """Return [PAD], unused entries and the other special tokens, in the order of their ids in BERT's vocabularies.

    >>> entries = reserved_entries(30522)
    >>> [entries.index(name) for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")], len(entries)
    ([0, 100, 101, 102, 103], 999)
    """
    unused = [f"[unused{i}]" for i in range(UNUSED + (MORE_UNUSED if size >= LARGE else 0))]
    return [SPECIAL[0], *unused[:UNUSED], *SPECIAL[1:], *unused[UNUSED:]]


def train_wordpiece(lines: TrainingLines, size: int, cased: bool, output: Path) -> Tokenizer:
    reserved = reserved_entries(size)
    rust = Rust(models.WordPiece(unk_token=BERT_NAMES["unk"]))
    plain = WordPiece.from_vocabulary(SPECIAL, do_lower_case=not cased)
    rust.normalizer, rust.pre_tokenizer = plain.rust.normalizer, plain.rust.pre_tokenizer
    characters: Counter = Counter()
    inside: set[str] = set()  # characters that occur in words after the first character
    for line in lines:
        text = rust.normalizer.normalize_str(line)
        characters.update(text)
        for word in text.split():
            inside.update(word[1:])
    alphabet = sorted(c for c in frequent(characters) if not c.isspace())
    single = alphabet + ["##" + c for c in alphabet if c in inside and unicodedata.category(c)[0] != "P"]
    if size - len(reserved) < 2 * len(single):
        raise BertJaxError(
            f"--size {size} leaves no room for words besides {len(reserved)} special entries and {len(single)} "
            f"single characters; set {len(reserved) + 4 * len(single)} or more"
        )
    # The trainer breaks ties by the ids of characters. As special tokens they have fixed ids; otherwise it numbers them
    # in the order of its hash tables.
    trainer = trainers.WordPieceTrainer(
        vocab_size=size - len(reserved), special_tokens=single, initial_alphabet=alphabet,
        limit_alphabet=len(alphabet), show_progress=False,
    )  # fmt: skip
    rust.train_from_iterator(iter(lines), trainer)
    vocabulary = rust.get_vocab()
    learned = [entry for entry in sorted(vocabulary, key=vocabulary.__getitem__) if entry not in reserved]
    tokenizer = WordPiece.from_vocabulary([*reserved, *learned], do_lower_case=not cased)
    tokenizer.save(output)
    return tokenizer


def frequent(characters: Counter) -> list[str]:
    """Return the most common characters that together make up COVERAGE of the text."""
    if not characters:
        raise BertJaxError("there is no text to train a vocabulary on; every input is empty")
    ordered = sorted(characters, key=lambda character: (-characters[character], character))
    covered = [0, *accumulate(characters[character] for character in ordered)]
    return ordered[: bisect_left(covered, COVERAGE * characters.total())]


def train_sentencepiece(lines: TrainingLines, size: int, cased: bool, output: Path) -> Tokenizer:
    """Train a unigram model with ALBERT's special tokens at ALBERT's ids."""
    from sentencepiece import SentencePieceTrainer, set_random_generator_seed

    set_random_generator_seed(0)
    model, raised = io.BytesIO(), list[BaseException]()

    def sentences() -> Iterator[str]:
        try:
            for line in lines:
                yield line if cased else line.lower()
        except (Exception, KeyboardInterrupt) as error:  # the trainer turns it into a RuntimeError
            raised.append(error)
            raise

    try:
        SentencePieceTrainer.train(
            sentence_iterator=sentences(),
            model_writer=model,
            vocab_size=size,
            model_type="unigram",
            character_coverage=COVERAGE,
            # without lower-casing, which the tokenizer does, as in ALBERT
            normalization_rule_name="nmt_nfkc",
            input_sentence_size=2_000_000,  # memory grows with it; a sample is enough for a vocabulary
            shuffle_input_sentence=True,
            hard_vocab_limit=False,
            num_threads=4,  # fixed, because rounding of sums depends on it
            pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, pad_piece="<pad>",
            control_symbols=["[CLS]", "[SEP]"],
            user_defined_symbols=["[MASK]"],
            minloglevel=2,
        )  # fmt: skip
    except RuntimeError as error:
        if not raised:
            reason = str(error).splitlines()[-1]
            raise BertJaxError(f"cannot train a vocabulary of {size} entries ({reason})") from error
    if raised:
        raise raised[0]
    (output / "spiece.model").write_bytes(model.getvalue())
    settings = {"do_lower_case": not cased, "keep_accents": True}
    write_json(output / "tokenizer_config.json", settings)
    tokenizer = open_tokenizer(output)
    tokenizer.save(output)
    return tokenizer


def measure_vocabulary(tokenizer: Tokenizer, lines: Iterable[str]) -> str:
    """Measure a vocabulary on lines that it was not trained on."""
    lines = list(lines)
    words = Counter(word for line in lines for word in line.split())
    count = words.total()
    if not count:
        return "  too little text to hold out lines for measuring"
    ids = [i for line in tokenizer.ids(lines) for i in line]
    unknown = ids.count(tokenizer.special.unk)
    pieces = tokenizer.ids(list(words))
    single = sum(times for times, ids in zip(words.values(), pieces, strict=True) if len(ids) == 1)
    return (
        f"  on {len(lines):,} held-out lines, {count:,} words: {len(ids) / count:.3f} tokens per word, "
        f"{single / count:.1%} of the words are one token, {unknown / len(ids):.3%} of the tokens unknown"
    )
