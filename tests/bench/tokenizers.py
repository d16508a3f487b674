"""`tokenizers`: compare ids and offsets with those of `transformers`, text by text.

A vocabulary is a model directory or a bare file: vocab.txt, vocab.json, or a SentencePiece `.model`. Both sides open
the same files, with one exception: from a bare ALBERT `.model`, transformers 5 turns pieces such as "-" into added
tokens, which split every text, so its ids are not those of Google's training. In this case both sides open the
directory that transformers saves. The ids from the bare file are compared with Google's recipe on the `sentencepiece`
library, for information only: the two libraries differ on segmentations of equal score, and on scripts that NFKD
decomposes.
"""

import json
import re
import shutil
import sys
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.bench.timing import Machine, timed
from bert_jax.core.errors import BertJaxError
from bert_jax.text.sentencepiece import SentencePiece
from bert_jax.text.tokenizer import sanitize_texts
from bert_jax.text.tokenizer_directory import open_tokenizer
from bert_jax.text.wordpiece import WordPiece
from tests.bench.comparison import Comparison, Row
from tests.bench.libraries import libraries

RECIPE = "by Google's recipe"
BATCH = 512  # texts compared at once
ADVERSARIAL = (
    "",
    " ",
    "\n\t\r\x0b\x0c\x85\u2028\u2029",
    "\x00\x01\x1f\x7f\x80\x9f",
    "a\x00b\x07c\u200bd\u200d\u2060\ufeffe",
    "lone \ud800 surrogate \udfff s\udc00",
    "\ufffd\ufffe\uffff\U0010ffff\ue000",
    "👩‍👩‍👧‍👦 🇩🇪 👍🏽 ☺️ \U0001f9ff",
    "e\u0301 u\u0308\u0304 a\u030a\u0327 \u0301alone z" + "\u0301" * 50,
    "ÀÉÎÕÜ àéîõü ß ẞ İ ı Ǆ ǅ ﬁ ﬃ Σ ς ſ K Å",
    "½ ² ① ㎏ ㍿ ﷺ … ‥ ™ № ℃",
    "中文漢字かなカナ한글ㄱ\u1112\u1161\u11ab𠀀𪚥｡ｱﾞＡｂ１",
    "हिन्दी கண்ணி ไทยกำลัง עִבְרִית العَرَبِيَّة\u0640\u0640",
    "don't can't ``quoted'' ''two'' “curly” ‘single’ — – - ‐ ‑",
    "1,000,000.50 16, 23–16, 9,9 3.14 -5 +7 50% $3 £4 €5",
    "[CLS] [SEP] [MASK] [PAD] [UNK] [mask] [ MASK ] x[MASK]y <s> </s> <mask> <pad> <unk> a <mask>b",
    "##ing ## # ▁ ▁word a▁b Ġ Ċ",
    "_under_score_ a.b@c.de http://x.yz/?q=1&r=2#f C:\\dir\\file",
    "x" * 100_000,
    "ab" * 50_000 + " end",
    "字" * 20_000,
    "word " * 20_000,
    "!" * 5_000,
    "a" * 99 + " " + "a" * 100 + " " + "a" * 101,
)


def compare_tokenizers(vocabularies: Sequence[str], texts: Sequence[str]) -> Comparison:
    corpora = {path: list(read_texts(Path(path))) for path in texts} | {"adversarial strings": ADVERSARIAL}
    machine, turns, notes, differing, tokens = Machine(), [], [], 0, 0
    for vocabulary in vocabularies:
        for name, ours, theirs in reference_pairs(Path(vocabulary)):
            for source, corpus in corpora.items():
                counts, turn = timed(compare, ours, theirs, corpus)
                turns.append(turn)
                tokens += counts["tokens"]
                differing += 0 if name.endswith(RECIPE) else counts["ids"] + counts["offsets"]
                if counts["first"]:
                    texts_in_lines = "".join(f"\n    {text!r:.300}" for text in counts["first"])
                    notes.append(
                        f"{name}  {Path(source).name}: {counts['ids']} of {len(corpus):,} texts differ in ids, "
                        f"{counts['offsets']} in offsets{texts_in_lines}"
                    )
    if differing:
        print("\n".join(notes), file=sys.stderr)
        raise BertJaxError(f"{differing:,} differences from transformers; the texts are above")
    what = f"ids and offsets of {len(vocabularies)} vocabularies, {tokens:,} tokens"
    row = Row(what, {"float32": "0"}, "transformers", unit="differences")
    return Comparison([row], machine.load_during(turns), notes)


def compare(ours, theirs, texts: Sequence[str]) -> dict:
    """Count the texts whose ids or offsets differ between `ours` and `theirs`, a function that returns both."""
    counts: dict[str, Any] = {"tokens": 0, "ids": 0, "offsets": 0, "first": []}
    for start in range(0, len(texts), BATCH):
        batch = texts[start : start + BATCH]
        encodings = ours.encode(batch)
        fast = ours.ids(batch)
        for text, encoding, plain, (ids, offsets) in zip(batch, encodings, fast, theirs(batch), strict=True):
            (span,) = encoding.spans
            wrong_ids = encoding.input_ids != ids or [encoding.input_ids[i] for i in span] != plain
            wrong_offsets = offsets is not None and encoding.offsets != offsets
            counts["tokens"] += len(ids)
            counts["ids"] += wrong_ids
            counts["offsets"] += wrong_offsets
            if (wrong_ids or wrong_offsets) and len(counts["first"]) < 3:
                counts["first"].append(text)
    return counts


def read_texts(path: Path) -> Iterator[str]:
    """Yield the strings of a JSON file, or the paragraphs of any other file."""
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BertJaxError(f"{path} cannot be read ({error}); name JSON or UTF-8 text files") from error
    if path.suffix == ".json":
        yield from find_strings(json.loads(content))
    else:
        yield from (paragraph for paragraph in re.split(r"\n\s*\n", content) if paragraph)


def find_strings(value) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from find_strings(inner)


def reference_pairs(vocabulary: Path) -> Iterator[tuple]:
    """Yield (name, our tokenizer, their function) for each way to compare a vocabulary with a reference."""
    if not vocabulary.exists():
        raise BertJaxError(
            f"{vocabulary} does not exist; name a model directory, vocab.txt, vocab.json or a .model file"
        )
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        if vocabulary.is_dir():
            yield vocabulary.name, open_tokenizer(vocabulary), transformers_on(vocabulary)
        elif vocabulary.suffix == ".txt":
            shutil.copy(vocabulary, scratch / "vocab.txt")
            ours = WordPiece.from_vocab_txt(vocabulary)
            # Without this file transformers lower-cases for every vocabulary; ours decides by the vocabulary.
            lower = {"do_lower_case": ours.lower_case, "tokenizer_class": "BertTokenizer"}
            (scratch / "tokenizer_config.json").write_text(json.dumps(lower))
            yield vocabulary.name, ours, transformers_on(scratch)
        elif vocabulary.suffix == ".json":
            yield vocabulary.name, *roberta(vocabulary, scratch)
        else:
            yield from sentencepiece(vocabulary, scratch)


def transformers_on(directory: Path, kind: str = "AutoTokenizer"):
    (transformers,) = libraries("transformers")
    tokenizer = getattr(transformers, kind).from_pretrained(directory)
    return make_reference(tokenizer)


def make_reference(tokenizer):
    def run(texts):
        # transformers refuses lone surrogates, so both sides get repaired texts.
        encoded = tokenizer(
            sanitize_texts(texts), return_offsets_mapping=True, truncation=False, padding=False
        )
        return zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)

    return run


def roberta(vocabulary: Path, scratch: Path):
    """Open both tokenizers with the merges.txt beside the vocabulary, or with the merges that its entries imply."""
    (transformers,) = libraries("transformers")
    merges = vocabulary.parent / "merges.txt"
    entries = json.loads(vocabulary.read_text(encoding="utf-8"))
    shutil.copy(vocabulary, scratch / "vocab.json")
    if merges.is_file():
        shutil.copy(merges, scratch / "merges.txt")
    else:
        lines = []
        for entry in sorted(entries, key=entries.__getitem__):
            pairs = ((entry[:n], entry[n:]) for n in range(1, len(entry)) if "<" not in entry)
            lines += [f"{a} {b}\n" for a, b in pairs if a in entries and b in entries][:1]
        (scratch / "merges.txt").write_text("".join(lines), encoding="utf-8")
    theirs = transformers.RobertaTokenizer(str(scratch / "vocab.json"), str(scratch / "merges.txt"))
    return open_tokenizer(scratch), make_reference(theirs)


def sentencepiece(model: Path, scratch: Path) -> Iterator[tuple]:
    (transformers,) = libraries("transformers")
    bare, saved = scratch / "bare", scratch / "saved"
    bare.mkdir()
    shutil.copy(model, bare / "spiece.model")
    ours = SentencePiece.from_model(model)
    if ours.template.second:  # ALBERT's convention
        transformers.AlbertTokenizer.from_pretrained(bare).save_pretrained(saved)
        yield f"{model.name} as transformers saves it", open_tokenizer(saved), transformers_on(saved)
        yield f"{model.name} {RECIPE}", ours, google_albert(model, ours)
    else:
        shutil.copy(model, bare / "sentencepiece.bpe.model")
        yield model.name, ours, transformers_on(bare, "XLMRobertaTokenizer")


def google_albert(model: Path, ours):
    """Return a function of texts that yields ALBERT's ids by the recipe of its training data, and no offsets.

    The recipe alone would read [MASK] as plain text; here special tokens stay whole, as our tokenizer keeps them.
    """
    from sentencepiece import SentencePieceProcessor

    library = SentencePieceProcessor(model_file=str(model))
    special = re.compile("|".join(map(re.escape, ours.names.values())))

    def cut(text: str) -> list[int]:
        text = text.replace("``", '"').replace("''", '"')
        text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c)).lower()
        ids = []
        for piece in library.encode(text, return_type=str):
            if piece[-1] == "," and piece[-2:-1].isdigit():
                number = library.encode(piece[:-1].replace("▁", ""), return_type=str)
                if piece[0] != "▁":
                    number = [number[0][1:], *number[1:]]
                ids += [library.piece_to_id(part) for part in (*number, ",") if part]
            else:
                ids.append(library.piece_to_id(piece))
        return ids

    def run(texts):
        for text in sanitize_texts(texts):
            ids = [ours.special.cls]
            for part in re.split(f"({special.pattern})", text):
                ids += [library.piece_to_id(part)] if special.fullmatch(part) else cut(part)
            yield [*ids, ours.special.sep], None

    return run
