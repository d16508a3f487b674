"""Remember the ids of words: a text has few different words, and each is then split into subwords once."""

from collections.abc import Sequence
from itertools import chain

from tokenizers import Tokenizer as Rust
from tokenizers import models, normalizers, pre_tokenizers

from bert_jax.text.tokenizer import Tokenizer, sanitize_texts

MOST = 1 << 21  # characters of words to remember: about 250,000 words, 50 MB


class WordCache:
    """Gives the same ids as its tokenizer, which must split texts at spaces.

    It works in one thread; the tokenizer uses all of them. So it is for a process per core.
    """

    def __init__(self, tokenizer: Tokenizer, most: int = MOST):
        self.tokenizer = tokenizer
        self.most = most
        self._known: dict[str, list[int]] = {}
        self._size = 0  # characters of the known words

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        words = [text.split(" ") for text in sanitize_texts(texts)]
        known = self._known  # another thread may begin a new one
        new = list(set(chain.from_iterable(words)).difference(known))
        known.update(zip(new, self.tokenizer.ids(new), strict=True))
        self._size += sum(map(len, new))
        if self._size > self.most:
            self._known, self._size = {}, 0
        return [list(chain.from_iterable(map(known.__getitem__, split))) for split in words]


IdSource = Tokenizer | WordCache


def cached(tokenizer: Tokenizer) -> IdSource:
    """Return the tokenizer with a cache of words, or the tokenizer itself if words depend on what is around them."""
    return WordCache(tokenizer) if splits_at_spaces(tokenizer.rust) else tokenizer


def splits_at_spaces(rust: Rust) -> bool:
    """Whether a text's ids are those of its parts between spaces, one after the other."""
    if not (
        isinstance(rust.model, models.WordPiece)
        and isinstance(rust.normalizer, normalizers.BertNormalizer)
        and isinstance(rust.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
    ):
        return False
    # An added token can contain spaces, or get them from the normalizer.
    added = [token.content for token in rust.get_added_tokens_decoder().values()]
    forms = chain(added, map(rust.normalizer.normalize_str, added))
    return not any(character.isspace() for form in forms for character in form)
