"""Byte-level BPE, the tokenizer of RoBERTa and of the first DeBERTa: every byte is an entry, so no text is unknown."""

from dataclasses import replace
from pathlib import Path

from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Rust

from bert_jax.core.errors import BertJaxError, recover_os_error
from bert_jax.core.files import read_json
from bert_jax.text.tokenizer import BERT_NAMES, ROBERTA_NAMES, Tokenizer, template_processor
from bert_jax.text.tokenizer_settings import TokenizerSettings


class ByteLevelBPE(Tokenizer):
    @classmethod
    def from_vocab_json(cls, vocab, merges, settings: TokenizerSettings) -> "ByteLevelBPE":
        """Build the tokenizer from the files of entries with their ids, and of pairs to merge in order of rank."""
        pairs = []
        for line in Path(merges).read_text(encoding="utf-8").split("\n"):
            if line and not line.startswith("#version"):
                if line.count(" ") != 1:
                    raise BertJaxError(f'{merges}: "{line[:60]}" is not a pair to merge; fetch it again')
                first, second = line.split(" ")
                pairs.append((first, second))
        vocabulary: dict[str, int] = read_json(Path(vocab))
        is_deberta = set(BERT_NAMES.values()) <= set(vocabulary)
        names = (BERT_NAMES if is_deberta else ROBERTA_NAMES) | settings.names
        prefix_space = settings.config.get("add_prefix_space", False)
        rust = Rust(models.BPE(vocabulary, pairs, continuing_subword_prefix="", end_of_word_suffix=""))
        rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
        rust.decoder = decoders.ByteLevel()
        sep, start = names["sep"], names["cls"]
        if is_deberta:
            # As the model was trained. transformers 5 puts two [SEP] between the texts of a pair, and makes a token of
            # the space before [MASK].
            ids = {role: vocabulary[name] for role, name in names.items()}
            rust.post_processor = template_processor(names, ids)
            mask = AddedToken(names["mask"], lstrip=True, special=True, normalized=False)
            settings = replace(settings, special={"mask": mask} | settings.special)
        elif sep in vocabulary and start in vocabulary:  # Tokenizer reports missing ones
            ends = (sep, vocabulary[sep]), (start, vocabulary[start])
            trim = settings.config.get("trim_offsets", True)
            rust.post_processor = processors.RobertaProcessing(*ends, trim, prefix_space)
        return cls(rust, names, settings)

    def save(self, directory) -> None:
        super().save(directory)
        try:
            self.rust.model.save(str(directory))  # vocab.json and merges.txt
        except Exception as error:  # such as a full disk; the Rust library raises bare Exception
            raise recover_os_error(error) from error

    def _transformers_class(self) -> dict:
        spaces, ends = self.rust.pre_tokenizer, self.rust.post_processor
        plain = isinstance(spaces, pre_tokenizers.ByteLevel) and self.rust.normalizer is None
        if not plain or self.names["cls"] != ROBERTA_NAMES["cls"]:
            return super()._transformers_class()
        flags = {"add_prefix_space": spaces.add_prefix_space}
        if isinstance(ends, processors.RobertaProcessing):
            flags["trim_offsets"] = ends.trim_offsets
        return {"tokenizer_class": "RobertaTokenizer"} | flags
