"""The small files beside a vocabulary: tokenizer_config.json, special_tokens_map.json, added_tokens.json."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Required, TypedDict

from tokenizers import AddedToken, Tokenizer

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import read_json, write_json

ROLES = ("pad", "unk", "cls", "sep", "mask")
# Tokenizers made for decoders, such as EuroBERT's and mmBERT's, name what fills these roles in other words.
DECODER_ROLES = {"cls": "bos", "sep": "eos"}
# What transformers' classes of the families with these names call them, too; programs ask for them by these roles.
SECOND_ROLES = {"<s>": "bos", "</s>": "eos"}
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
KEPT = ("model_max_length",)  # has no effect on ids, but other tools read it from the saved directory


class TokenFacts(TypedDict, total=False):
    content: Required[str]
    single_word: bool
    lstrip: bool
    rstrip: bool
    normalized: bool
    special: bool


Token = str | TokenFacts | None


class SpecialTokens(TypedDict, total=False):
    bos_token: Token
    eos_token: Token
    pad_token: Token
    unk_token: Token
    cls_token: Token
    sep_token: Token
    mask_token: Token


class TokenizerConfig(SpecialTokens, total=False):
    added_tokens_decoder: dict[int, TokenFacts]
    do_lower_case: bool | None
    strip_accents: bool | None
    tokenize_chinese_chars: bool | None
    add_prefix_space: bool
    trim_offsets: bool
    keep_accents: bool
    split_by_punct: bool
    model_input_names: list[str] | None


# The type of each file's content.
FILES: dict[str, Any] = {
    "tokenizer_config.json": TokenizerConfig,
    "special_tokens_map.json": SpecialTokens,
    "added_tokens.json": dict[str, int],
}


@dataclass(frozen=True)
class TokenizerSettings:
    """The content of the files: `config` unchanged, special tokens by role, added tokens by id."""

    config: dict = field(default_factory=dict)
    special: dict[str, AddedToken] = field(default_factory=dict)
    added: dict[int, AddedToken] = field(default_factory=dict)
    where: str = "tokenizer"

    @property
    def names(self) -> dict[str, str]:
        return {role: token.content for role, token in self.special.items()}

    @classmethod
    def from_directory(cls, directory) -> "TokenizerSettings":
        directory = Path(directory)
        config, names, listed = (
            read_json(directory / name, file_schema) if (directory / name).is_file() else {}
            for name, file_schema in FILES.items()
        )
        tokens = config | names
        tokens |= {
            f"{role}_token": tokens[f"{other}_token"]
            for role, other in DECODER_ROLES.items()
            if not tokens.get(f"{role}_token") and tokens.get(f"{other}_token")
        }
        special = {role: added_token(token) for role in ROLES if (token := tokens.get(f"{role}_token"))}
        added = {i: AddedToken(name, normalized=True) for name, i in listed.items()}
        added |= {i: added_token(token) for i, token in config.get("added_tokens_decoder", {}).items()}
        return cls(config, special, added, str(directory))

    def add_tokens(self, rust: Tokenizer, names: dict[str, str]) -> None:
        """Keep special tokens in texts unsplit, and give the added tokens their ids."""
        for i, token in sorted(self.added.items()):
            if token.content not in names.values():
                rust.add_tokens([token])
                actual = rust.token_to_id(token.content)
                if actual != i:
                    problem = f"the added token {token.content} should have id {i}, not {actual}"
                    remedy = "use the added_tokens.json that belongs to this vocabulary"
                    raise BertJaxError(f"{self.where}: {problem}; {remedy}")
        # A token that tokenizer.json lists keeps the flags that stand there, such as lstrip.
        listed = {token.content for token in rust.get_added_tokens_decoder().values()}
        tokens = {token.content: token for token in (*self.special.values(), *self.added.values())}
        known = [name for name in names.values() if name not in listed and rust.token_to_id(name) is not None]
        rust.add_special_tokens([tokens.get(name, name) for name in known])

    def save(self, directory: Path, names: dict[str, str], file_schema: dict) -> None:
        # Byte-level vocabularies may have no entry for unknown characters; padding stands in for it here.
        roles = [role for role in ROLES if role != "unk" or names["unk"] != names["pad"]]
        special = {f"{role}_token": names[role] for role in roles}
        special |= {f"{SECOND_ROLES[name]}_token": name for name in special.values() if name in SECOND_ROLES}
        kept = {key: self.config[key] for key in KEPT if key in self.config}
        write_json(directory / "special_tokens_map.json", special)
        write_json(directory / "tokenizer_config.json", file_schema | special | kept)


def added_token(token: str | TokenFacts) -> AddedToken:
    if isinstance(token, str):
        return AddedToken(token, special=True, normalized=False)
    return AddedToken(token["content"], **{key: value for key, value in token.items() if key in FLAGS})
