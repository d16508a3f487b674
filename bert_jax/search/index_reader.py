"""Read an index as it is: its files, which are mapped, and its models, which are loaded when first asked for."""

from collections.abc import Mapping
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

from bert_jax.core.config import check_flag
from bert_jax.core.errors import BertJaxError
from bert_jax.core.paths import require_path
from bert_jax.search.fusion import PassagePosition, Ranking
from bert_jax.search.index_manifest import MODEL_SETTINGS, IndexManifest
from bert_jax.search.keywords import KeywordSearch
from bert_jax.search.segment import Segment, read_current

if TYPE_CHECKING:  # imported only where they are used: what builds models
    from bert_jax.inference.encoder import Encoder
    from bert_jax.search.index_encoder import IndexEncoder, IndexModel, TokenIndexEncoder

AnyPath = str | PathLike[str]


class IndexReader:
    """An index, as it was when it was opened or last changed with it; `refresh` loads the changes of others."""

    manifest: IndexManifest
    segments: list[Segment]

    def __init__(
        self,
        path: AnyPath,
        model: "IndexModel | None" = None,
        sparse_model: "IndexModel | None" = None,
        multi_vector_model: "IndexModel | None" = None,
        **computed: Any,
    ):
        self.path, self.computed = require_path(path, "path"), computed
        self.model, self.sparse_model, self.multi_vector_model = model, sparse_model, multi_vector_model
        for name, given in self.given.items():
            if given is not None:
                from bert_jax.search.index_encoder import require_model

                require_model(given, name)
        self.encoders: dict[str, IndexEncoder] = {}  # by the file of their rows
        self.rerankers: dict[str, Encoder] = {}  # by their directories
        self.rankers: dict[Encoder, TokenIndexEncoder] = {}

    @classmethod
    def open(
        cls, path: AnyPath, model: "IndexModel | None" = None, verify: bool = False, *, engine: str = "auto",
        dtype: str = "float32", batch_invariant: bool = False, sparse_model: "IndexModel | None" = None,
        multi_vector_model: "IndexModel | None" = None,
    ) -> Self:  # fmt: skip
        """Open an index. `model` is the model's directory if it has moved since the index was built, or the model if it
        is loaded already; so are `sparse_model` and `multi_vector_model`. The hashes of all files are checked with
        `verify`; without it, texts, postings and vectors above 4 MiB are not hashed. `engine`, `dtype` and
        `batch_invariant` are those of `bert_jax.load`, for the models and for rerankers that `search` names by their
        directories.

        >>> len(bert_jax.Index.open("index"))
        3
        """
        check_flag(verify, "verify")
        from bert_jax.inference.engine import check_engine

        check_engine(engine)
        index = cls(
            path, model, sparse_model, multi_vector_model,
            engine=engine, dtype=dtype, batch_invariant=batch_invariant,
        )  # fmt: skip
        index.manifest, index.segments = read_current(index.path, verify)
        for rows, name in MODEL_SETTINGS.items():
            given = index.given[name]
            if given is not None and rows not in index.manifest.models:
                raise BertJaxError(f"{path} was not built with a model like {given!s:.60}; leave it out")
        return index

    def refresh(self) -> None:
        """Load the changes made since the index was opened.

        >>> bert_jax.Index.open("index").refresh()
        """
        before = self.manifest.models
        self.manifest, self.segments = read_current(self.path)
        self.__dict__.pop("keywords", None)
        if self.manifest.models != before:
            self.encoders.clear()

    def __len__(self) -> int:
        return self.manifest.documents

    def __repr__(self) -> str:
        return f"<index of {len(self):,} documents in {self.manifest.passages:,} passages: {self.path}>"

    @cached_property
    def keywords(self) -> KeywordSearch:
        segments = [(segment.postings, segment.live) for segment in self.segments]
        return KeywordSearch(segments, self.manifest.stemmed_language)

    @property
    def given(self) -> dict[str, Any]:
        """The models that were given to open the index, by the names of their arguments."""
        return {name: getattr(self, name) for name in MODEL_SETTINGS.values()}

    def encoder_of(self, rows: str) -> Any:
        """Return the model of the rows in a file of the segments; it is loaded when it is first asked for."""
        from bert_jax.search.index_encoder import ENCODERS, load_encoder

        if rows not in self.encoders:
            given = self.given[MODEL_SETTINGS[rows]]
            if (facts := self.manifest.models.get(rows)) is None:
                raise BertJaxError(f"{self.path} has no vectors because it was built without a model")
            self.encoders[rows] = load_encoder(ENCODERS[rows], self.path, facts, given, **self.computed)
        return self.encoders[rows]

    def sort_passages(self, scores: Mapping[PassagePosition, float]) -> Ranking:
        """Sort passages by score, best first; equal scores by document id, then by position in the document."""

        def rank(position: PassagePosition) -> tuple:
            segment, passage = position
            return -scores[position], *self.segments[segment].document_position(passage)

        return {position: scores[position] for position in sorted(scores, key=rank)}
