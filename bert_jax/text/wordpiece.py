"""WordPiece, BERT's own tokenizer: it splits words into the longest entries that the vocabulary has."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tokenizers import Tokenizer as Rust
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import write_atomically
from bert_jax.text.encoding import Template
from bert_jax.text.tokenizer import BERT_NAMES, ROBERTA_NAMES, Tokenizer
from bert_jax.text.tokenizer_settings import TokenizerSettings

# MPNet's vocabulary has RoBERTa's and BERT's special tokens; it uses BERT's unknown token.
MPNET_NAMES = ROBERTA_NAMES | {"unk": "[UNK]"}
# Key in tokenizer_config.json -> attribute of the Rust normalizer.
CASING = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}


class WordPiece(Tokenizer):
    """
    >>> words = WordPiece.from_vocabulary([*BERT_NAMES.values(), "play", "##ing"])
    >>> words.tokens(words.encode(["Playing"])[0].input_ids)
    ['[CLS]', 'play', '##ing', '[SEP]']
    """

    @classmethod
    def from_vocabulary(cls, entries: Sequence[str], settings=None, **casing) -> "WordPiece":
        """Build the tokenizer from entries in the order of their ids.

        `casing` are do_lower_case, strip_accents and tokenize_chinese_chars. Without do_lower_case, the vocabulary
        decides: if it has entries with capitals, it is cased.
        """
        settings = settings or TokenizerSettings()
        # Empty and duplicate lines of a vocab.txt still count as ids.
        vocabulary = {entry: i for i, entry in enumerate(entries) if entry}
        is_mpnet = set(MPNET_NAMES.values()) <= set(vocabulary)
        names = (MPNET_NAMES if is_mpnet else BERT_NAMES) | settings.names
        casing = {key: settings.config[key] for key in CASING if key in settings.config} | casing
        lower = casing.get("do_lower_case")
        rust = Rust(models.WordPiece(vocabulary, unk_token=names["unk"]))
        rust.normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=casing.get("tokenize_chinese_chars", True),
            strip_accents=casing.get("strip_accents"),
            lowercase=not share_with_capitals(entries) if lower is None else lower,
        )
        rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        rust.decoder = decoders.WordPiece(prefix="##")
        if is_mpnet and {names["cls"], names["sep"]} <= set(vocabulary):
            sep, start = ((names[role], vocabulary[names[role]]) for role in ("sep", "cls"))
            rust.post_processor = processors.RobertaProcessing(sep, start, True, False)
        return cls(rust, names, settings)

    @classmethod
    def from_vocab_txt(cls, path, settings: TokenizerSettings | None = None, **casing) -> "WordPiece":
        lines = Path(path).read_text(encoding="utf-8").removesuffix("\n").split("\n")
        entries = [line.rstrip() for line in lines]
        check_entries(entries, path)
        return cls.from_vocabulary(entries, settings, **casing)

    @classmethod
    def from_rust(cls, rust: Rust, settings: TokenizerSettings) -> Self:
        """Build the tokenizer from a tokenizer.json; tokenizer_config.json overrides its casing, as in transformers."""
        if isinstance(rust.normalizer, normalizers.BertNormalizer):
            for key, attribute in CASING.items():
                if settings.config.get(key) is not None:
                    setattr(rust.normalizer, attribute, settings.config[key])
        return super().from_rust(rust, settings)

    @property
    def lower_case(self) -> bool:
        probe = self.rust.normalizer.normalize_str("A") if self.rust.normalizer else "A"
        return probe == "a"

    def save(self, directory) -> None:
        """Write vocab.txt, tokenizer.json, and tokenizer_config.json, from which `transformers` reads the casing."""
        directory = Path(directory)
        super().save(directory)
        entries = {i: entry for entry, i in self.rust.get_vocab(with_added_tokens=False).items()}
        lines = [entries.get(i, "") + "\n" for i in range(max(entries) + 1)]
        write_atomically(directory / "vocab.txt", "".join(lines))

    def _transformers_class(self) -> dict:
        normalizer, cls, sep = self.rust.normalizer, (self.special.cls,), (self.special.sep,)
        classes = {
            Template(cls, sep, sep, second=1): "BertTokenizer",
            Template(cls, sep * 2, sep, second=0): "MPNetTokenizer",
        }
        if self.template in classes and isinstance(normalizer, normalizers.BertNormalizer):
            casing = {key: getattr(normalizer, attribute) for key, attribute in CASING.items()}
            return {"tokenizer_class": classes[self.template]} | casing
        return super()._transformers_class()


def check_entries(entries: Sequence[str], path) -> None:
    """Refuse a damaged vocab.txt, and warn of blank and duplicate lines."""
    seen: set[str] = set()
    wasted = []
    for number, entry in enumerate(entries, 1):
        if "\0" in entry:
            raise BertJaxError(f"{path} line {number} has NUL bytes; the file is damaged, copy it again")
        if not entry or entry in seen:
            wasted.append(number)
        seen.add(entry)
    if wasted:
        warn_caller(
            f"{path}: {len(wasted):,} blank or duplicate lines, the first is line {wasted[0]}; no text gets their ids"
        )


def share_with_capitals(entries: Sequence[str]) -> float:
    """Return the share of a vocabulary's entries with capitals; names in brackets, like [CLS], do not count.

    >>> share_with_capitals(["[CLS]", "the", "The", "cat"]), share_with_capitals(["[CLS]", "the"])
    (0.25, 0.0)
    """
    with_capitals = [entry for entry in entries if entry != entry.lower()]
    return sum(not (entry[0] == "[" and entry[-1] == "]") for entry in with_capitals) / max(len(entries), 1)
