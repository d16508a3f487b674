"""The entry point for notebooks and scripts: `model = bert_jax.load(path)`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from bert_jax.core.config import SEED_RANGE, check_flag, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.layout import Layout
from bert_jax.inference.encoder import Encoder, class_name_for
from bert_jax.inference.engine import open_directory
from bert_jax.inference.model_classes import CLASSES

if TYPE_CHECKING:
    from bert_jax.inference.adapters import AdapterModels


@overload
def load(
    path, *, dtype: str = ..., attention: str = ..., remat: str = ..., head: str | None = ...,
    labels: Sequence[str] = ..., seed: int = ..., tokenizer: bool = ..., engine: str = ...,
    batch_invariant: bool = ..., adapters: None = ...,
) -> Encoder: ...  # fmt: skip


@overload
def load(
    path, *, adapters: Mapping[str, Any], dtype: str = ..., attention: str = ..., remat: str = ...,
    batch_invariant: bool = ...,
) -> "AdapterModels": ...  # fmt: skip


def load(
    path,
    *,
    dtype: str = "float32",
    attention: str = "auto",
    remat: str = "none",
    head: str | None = None,
    labels: Sequence[str] = (),
    seed: int = 0,
    tokenizer: bool = True,
    engine: str = "auto",
    batch_invariant: bool = False,
    adapters: Mapping[str, Any] | None = None,
) -> "Encoder | AdapterModels":
    """Open a Hugging Face model directory of any family in hub/families, as the class for what it is.

    An `Embedder`, `M3Embedder`, `SparseEmbedder`, `MultiVectorEmbedder`, `StaticEmbedder`, `Classifier`, `Tagger`,
    `QuestionAnswerer`, `Reranker` or `MaskedLM`, else an `Encoder`. Each class also has its own `load`, which refuses a
    model of another use.

    `head` puts a new head on the encoder ("classify", "tag", "answer", ...), with `labels` if it takes any, and with
    random initial values from `seed`. `dtype`, `attention` and `remat` say how to compute, as in the config of a run.
    With `tokenizer=False` the directory needs no tokenizer.

    Static embeddings, of model2vec or sentence-transformers, are computed with NumPy and SciPy, and all other models
    with JAX. `engine="jax"` computes the former so, too; NumPy does it without importing JAX. What `bert-jax export
    --format onnx` wrote is computed by ONNX Runtime, without importing JAX, or by OpenVINO with `engine="openvino"`;
    with `dtype="int8"`, with the int8 file of --quantize, which OpenVINO computes if --calibration-data was given.

    With `batch_invariant=True` the result for a text depends on this text alone, to the bit: not on the other texts of
    a call, their number or their order. Few texts then take longer.

    `adapters` are directories of adapters (LoRA, in PEFT's files) by name. Then the result has a model for each of
    them, and "" for the model itself; all share one encoder: `models["spam"].predict(texts)`.

    Compiled programs are cached on disk for later processes, in the user's cache directory unless JAX is configured
    with another one.

    >>> bert_jax.load(DIR)
    <MaskedLM of bert: 2 layers of 8, heads: mlm, nsp, computed in float32 by jax>
    """
    check_number(seed, "seed", is_whole=True, allowed=SEED_RANGE)
    check_flag(tokenizer, "tokenizer")
    directory = open_directory(path, engine, dtype, attention, remat, batch_invariant)
    if adapters is not None:
        if head is not None or directory.engine != "jax" or not tokenizer:
            raise BertJaxError(
                "adapters are computed with the engine jax and have heads of their own; leave head, engine and "
                "tokenizer out"
            )
        from bert_jax.inference.adapters import AdapterModels

        return AdapterModels(directory, adapters)
    if head is None:
        return CLASSES[class_name_for(directory.layout)].from_directory(directory, tokenizer)
    if directory.engine != "jax":
        raise BertJaxError(f'a new head is computed by the engine jax, not by "{directory.engine}"')
    from bert_jax.inference.engines.jax import JaxEngine

    layout = directory.layout.with_head(head, labels)
    params = directory.read_params(layout, new_head=head)
    params = {**init_missing_parts(layout, seed, set(layout.module_names) - set(params)), **params}
    started = JaxEngine(layout.config, params)
    if batch_invariant:
        started.shapes = started.shapes.batch_invariant()
    return CLASSES[class_name_for(layout)](layout, started, directory.tokenizer if tokenizer else None)


def init_missing_parts(layout: Layout, seed: int, names: set[str]) -> dict:
    """Return random initial values for the named parts of a model."""
    import jax

    return jax.jit(lambda key: layout.init(key, names))(jax.random.key(seed)) if names else {}
