"""The entry point for notebooks and scripts: `model = bert_jax.load(path)`."""

import warnings
from collections.abc import Sequence

import jax

from bert_jax.core.compilation_cache import enable_compilation_cache
from bert_jax.core.config import SEED_RANGE, check_number
from bert_jax.core.errors import BertJaxError, check_name, suggest_name
from bert_jax.hub.layout import Layout
from bert_jax.hub.layout_warnings import layout_warnings
from bert_jax.hub.model_directory import ModelDirectory, atomic_model_directory, check_path, save_model
from bert_jax.inference import programs
from bert_jax.inference.classifier import classify
from bert_jax.inference.embedder import embed, similarity
from bert_jax.inference.in_distribution import in_scope
from bert_jax.inference.layer_states import attentions, hidden_states
from bert_jax.inference.mask_filler import fill_mask
from bert_jax.inference.pseudo_likelihood import score
from bert_jax.inference.question_answerer import answer
from bert_jax.inference.reranker import rank
from bert_jax.inference.runner import Runner
from bert_jax.inference.streaming import vector_stacker
from bert_jax.inference.tagger import tag, tag_words
from bert_jax.inference.warm_up import warm_up
from bert_jax.models.encoder_config import COMPUTATION_FIELDS
from bert_jax.models.pooling import POOLINGS
from bert_jax.predictions import calibration as calibrations
from bert_jax.predictions import out_of_scope as scopes
from bert_jax.predictions import training_origin

LOAD_ARGUMENTS = ("head", "labels", "seed", "tokenizer")  # of `load`, besides the fields of `computed`


def load(
    path,
    *,
    head: str | None = None,
    labels: Sequence[str] = (),
    seed: int = 0,
    tokenizer: bool = True,
    **computed,
) -> "Model":
    """Open a Hugging Face model directory of any family in hub/families.

    `head` puts a new head on the encoder ("classify", "tag", "answer", ...), with `labels` if it takes any, and with
    random initial values from `seed`. `computed` takes the fields of EncoderConfig that say how to compute: dtype,
    attention, remat, vocab_multiple. With `tokenizer=False` the directory needs no tokenizer.

    Compiled programs are cached on disk for later processes, in the user's cache directory unless JAX is configured
    with another one.
    """
    if unknown := [name for name in computed if name not in COMPUTATION_FIELDS]:
        raise BertJaxError(
            f'load takes no "{unknown[0]}"; {suggest_name(unknown[0], (*LOAD_ARGUMENTS, *COMPUTATION_FIELDS))}'
        )
    check_number(seed, "seed", is_whole=True, allowed=SEED_RANGE)
    enable_compilation_cache()
    directory = ModelDirectory.open(path, **computed)
    if tokenizer:
        for note in layout_warnings(directory):
            warnings.warn(note, stacklevel=2)
    layout, path, opened = directory.layout, directory.path, directory.tokenizer if tokenizer else None
    if head is not None:
        layout = layout.with_head(head, labels)
        params = directory.read_params(layout, new_head=head)
        params = {**init_missing_parts(layout, seed, set(layout.module_names) - set(params)), **params}
        return Model(layout, params, opened)
    return Model(
        layout,
        directory.read_params(),
        opened,
        calibrations.read_calibration(path, layout.labels),
        training_origin.read_origin(path),
        scopes.read_detector(path, layout.config.hidden_size),
    )


def init_missing_parts(layout: Layout, seed: int, names: set[str]) -> dict:
    """Return random initial values for the named parts of a model."""
    return jax.jit(lambda key: layout.init(key, names))(jax.random.key(seed)) if names else {}


class Model(Runner):
    """An encoder with its heads, parameters and tokenizer.

    From JAX code, call `model.module.apply({"params": model.params}, batch)`. Otherwise use `hidden_states`, `pooled`,
    `save` and the prediction methods below. These take one text, a list or any other iterable, and return one result, a
    list or an iterator. They read an iterable only as far as they need.
    """

    embed = embed
    similarity = similarity
    fill_mask = fill_mask
    score = score
    classify = classify
    tag = tag
    tag_words = tag_words
    answer = answer
    rank = rank
    in_scope = in_scope

    def __repr__(self) -> str:
        c, heads = self.config, ", ".join(self.layout.heads) or "none"
        shape = (
            f"{c.num_hidden_layers} layers of {c.hidden_size}, heads: {heads}, computed in {c.computed_dtype}"
        )
        return f"<{self.layout.family.model_type}: {shape}>"

    hidden_states = hidden_states
    attentions = attentions
    warm_up = warm_up

    def pooled(self, texts, pooling: str = "mean", normalize: bool = True):
        """Return one vector for each text: the mean of its hidden states, the [CLS] state, or BERT's pooler output.

        >>> model.pooled(["the cat", "the mat"], pooling="cls").shape
        (2, 8)
        """
        check_name(pooling, (*POOLINGS, programs.POOLER), "pooling")
        if pooling == programs.POOLER and not self.layout.pooler:
            raise BertJaxError('this model has no pooler; use pooling="mean" or "cls"')
        program = programs.pooled_states(self.config, pooling, normalize)
        gather = vector_stacker(self.config.hidden_size)
        return self.map_encodings(texts, lambda encodings: self.run(encodings, program), gather)

    def with_params(self, params: dict) -> "Model":
        """Return the model with other parameters, such as from your own training loop.

        It has no calibration, origin or scope, because those belong to the old parameters.

        >>> model.with_params(model.params)
        <bert: 2 layers of 8, heads: mlm, nsp, computed in float32>
        """
        return Model(self.layout, params, self._tokenizer)

    def save(self, path) -> None:
        """Write a Hugging Face directory that `transformers` and `load` can open.

        The directory of an embedder can also be opened by `sentence-transformers`.
        """
        with atomic_model_directory(check_path(path)) as new:
            save_model(new, self.layout, self.params, self._tokenizer)
            calibrations.save_calibration(new, self.calibration)
            training_origin.save_origin(new, self.origin)
            scopes.save_detector(new, self.scope)

    def encode(self, texts):
        """Return the `Encoding` of each text or pair, truncated to the model's length with a warning.

        >>> model.tokenizer.tokens(model.encode("the cats").input_ids)
        ['[CLS]', 'the', 'cat', '##s', '[SEP]']
        """
        return self.map_encodings(texts, iter)
