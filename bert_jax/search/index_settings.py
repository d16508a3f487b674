"""The settings to build an index with: those that the user gives, or those of the existing index."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from bert_jax.core.config import Range, check_number
from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.search import index_manifest as manifests
from bert_jax.search.hnsw import import_faiss
from bert_jax.search.index_encoder import IndexEncoder, IndexModel, directory_of, load_encoder
from bert_jax.search.index_manifest import INDEX_FILE, MAX_PASSAGE_TOKENS, IndexManifest
from bert_jax.search.language import AUTO, LANGUAGES, NONE
from bert_jax.search.passages import PassageCutter, WordCounter
from bert_jax.search.stored_vectors import StoredVectors

DEFAULT_PASSAGE_TOKENS = 256  # of a passage by default, or fewer if the model reads fewer
OVERLAP_DIVISOR = 8  # by default, one in OVERLAP_DIVISOR of a passage's tokens may be repeated in the next
CHANGEABLE = ("quantization", "approximate", "language")  # by --compact


@dataclass(frozen=True)
class IndexOptions:
    """The settings that the user gave; None if not given."""

    model: IndexModel | None = None
    passage_tokens: int | None = None
    overlap: int | None = None
    quantization: str | None = None
    approximate: str | None = None
    language: str | None = None
    vectors: str | None = None  # a folder of vectors that were computed elsewhere


class IndexSettings:
    """The settings of an index, and its model, which is loaded only when it is needed."""

    def __init__(self, path: Path, options: IndexOptions, merging: bool = False):
        self.path, self.options = path, options
        if options.language is not None:
            check_name(options.language, (AUTO, NONE, *LANGUAGES), "language")
        if options.model and path.resolve().is_relative_to(directory_of(options.model)):
            raise BertJaxError(f"{path} is in the model's directory; name one elsewhere")
        existing = manifests.read_index_manifest(path) if (path / INDEX_FILE).exists() else None
        if existing is not None and not existing.changes:  # nothing was built with its settings
            if existing.model and not options.model:
                self.options = replace(options, model=existing.model.path)
            existing = None
        self.is_new = existing is None
        self.manifest = self.new_manifest() if existing is None else self.existing_manifest(existing, merging)

    @cached_property
    def encoder(self) -> IndexEncoder | None:
        if self.is_new:
            return IndexEncoder(self.options.model) if self.options.model else None
        model = self.manifest.model
        return load_encoder(self.path, model, self.options.model) if model else None

    @cached_property
    def stored_vectors(self) -> StoredVectors | None:
        """The vectors of --vectors, which are not computed again."""
        if self.options.vectors is None:
            return None
        encoder = self.encoder
        if encoder is None:
            raise BertJaxError(
                "--vectors are those of a model; add --model DIR, with which they were computed"
            )
        return StoredVectors(self.options.vectors, encoder.facts, encoder.model.embedder)

    @property
    def cutter(self) -> PassageCutter:
        tokens, encoder = self.manifest.passage_tokens, self.encoder
        if encoder is None:
            return PassageCutter(WordCounter(), tokens, self.manifest.overlap)
        return PassageCutter(encoder.token_counter, encoder.passage_room(tokens), self.manifest.overlap)

    def new_manifest(self) -> IndexManifest:
        options, model = self.options, self.encoder.facts if self.encoder else None
        most = model.max_length if model else MAX_PASSAGE_TOKENS
        tokens = (
            min(DEFAULT_PASSAGE_TOKENS, most) if options.passage_tokens is None else options.passage_tokens
        )
        check_number(
            tokens, "--passage-tokens", is_whole=True, allowed=Range(1, min(most, MAX_PASSAGE_TOKENS))
        )
        overlap = tokens // OVERLAP_DIVISOR if options.overlap is None else options.overlap
        check_number(overlap, "--overlap", is_whole=True, allowed=Range(0, tokens // 2))
        if model is None and (options.quantization or options.approximate):
            raise BertJaxError("--quantize and --approximate apply to vectors; add --model DIR")
        return check_candidates(
            IndexManifest(
                model,
                tokens,
                overlap,
                parse_none(options.quantization),
                parse_none(options.approximate),
                language=parse_none(options.language or AUTO),
            )  # fmt: skip
        )

    def existing_manifest(self, existing: IndexManifest, merging: bool) -> IndexManifest:
        """Return the settings of the index, with the changes that merging allows. Raise if others were given."""
        if self.options.model and not existing.model:
            raise BertJaxError(
                f"{self.path} was built without a model; leave --model out, or name a new index"
            )
        given: dict[str, Any] = {
            name: parse_none(value)
            for name in ("passage_tokens", "overlap", *CHANGEABLE)
            if (value := getattr(self.options, name)) is not None and (merging or value != AUTO)
        }
        for name, value in given.items():
            if value == getattr(existing, name):
                continue
            if name not in CHANGEABLE:
                flag = f"--{name.replace('_', '-')}"
                raise BertJaxError(
                    f"{self.path} was built with {flag} {getattr(existing, name)}, not {value}; name a new index"
                )
            if not merging:
                raise BertJaxError(
                    f"{self.path} was built with {name} {getattr(existing, name) or NONE}, not {value or NONE}; add "
                    "--compact to this command to change that"
                )
        return check_candidates(replace(existing, **given))


def check_candidates(manifest: IndexManifest) -> IndexManifest:
    if manifest.quantization and manifest.approximate:
        raise BertJaxError(
            "--quantize and --approximate both choose the candidates to rescore; set one of them to none"
        )
    if manifest.approximate:
        import_faiss()  # raises if faiss is missing, before anything is built
    return manifest


def parse_none(value: str | None) -> str | None:
    return None if value == NONE else value
