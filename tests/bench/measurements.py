"""The measurements of `all`: their commands.

A word of a command may contain a placeholder: {model}, {classifier} and {corpus} are directories, {data} is the
directory of the data sets, {inputs} holds the files that INPUTS makes from them, and {output} is the output directory.
A measurement is left out if a placeholder has no value, or if a file or directory that it names does not exist.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.bench import sources

LIBRARIES = {  # value of --against -> the modules that it needs
    "sentence-transformers": ("sentence_transformers",),
    "onnxruntime": ("onnxruntime", "onnx", "torch", "transformers"),
    "transformers": ("torch", "transformers"),
    "transformers-autocast": ("torch", "transformers"),
    "torch": ("torch", "transformers"),
    "torch-autocast": ("torch", "transformers"),
    "torch-autocast-compiled": ("torch", "transformers"),
}


@dataclass(frozen=True)
class Measurement:
    name: str
    title: str
    command: str  # what follows `python -m tests.bench`
    against: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()  # modules to compare with; if one is missing, the measurement is left out


# Input files made from the data sets: name -> (the function that writes the file, the files that it reads).
INPUTS: dict[str, tuple[Callable[..., None], tuple[str, ...]]] = {
    "sst2.txt": (sources.sentences, ("glue-sst2/dev.tsv",)),
    "sts.txt": (sources.pairs_as_lines, ("stsbenchmark/sts-test.csv",)),
    "long.txt": (sources.passages, ("wikitext-2/test.txt",)),
    "mrpc-train.tsv": (sources.paraphrases, ("mrpc/msr_paraphrase_train.txt",)),
    "mrpc-test.tsv": (sources.paraphrases, ("mrpc/msr_paraphrase_test.txt",)),
}

EMBEDDERS = ("sentence-transformers", "onnxruntime")
FINE_TUNERS = ("transformers", "transformers-autocast")
ONE_EPOCH = "--config.data.max_examples=6400 --config.epochs=1"


def finetuning(name: str, title: str, files: str, settings: str) -> Measurement:
    config, train, *validation = files.split()
    flags = [
        f"--config.data.train={train}",
        *(f"--config.data.validation={path}" for path in validation),
        settings,
    ]
    command = f"finetune --config configs/{config}.py --config.init={{model}} {' '.join(flags)}"
    return Measurement(name, title, command, FINE_TUNERS)


MEASUREMENTS = (
    Measurement("embed-short", "STS-B's sentences", "embed --model {model} --input {inputs}/sts.txt", EMBEDDERS),
    Measurement(
        "embed-long", "passages of 200 words",
        "embed --model {model} --input {inputs}/long.txt --texts 100", EMBEDDERS,
    ),
    Measurement(
        "predict", "SST-2's dev texts", "predict --model {classifier} --input {inputs}/sst2.txt",
        ("transformers", "onnxruntime"),
    ),
    Measurement(
        "step", "base",
        "step --config configs/pretrain.py:base --config.data.batch_size=8 --config.data.lengths=128 "
        "--config.data.length_ratios=1", ("torch", "torch-autocast", "torch-autocast-compiled"),
    ),
    finetuning(
        "sst-2", "fine-tune on SST-2", "classify {data}/glue-sst2/train.tsv {data}/glue-sst2/dev.tsv",
        f"{ONE_EPOCH} --config.optimizer.learning_rate=3e-5",
    ),
    finetuning(
        "mrpc", "fine-tune on MRPC", "classify {inputs}/mrpc-train.tsv {inputs}/mrpc-test.tsv",
        "--config.epochs=2 --config.optimizer.learning_rate=5e-5 --config.data.columns.text=sentence1 "
        "--config.data.columns.text_pair=sentence2",
    ),
    finetuning(
        "conll-2003", "fine-tune on CoNLL-2003",
        "tag {data}/conll2003/eng.train {data}/conll2003/eng.testa",
        f"{ONE_EPOCH} --config.optimizer.learning_rate=5e-5",
    ),
    finetuning(
        "squad", "fine-tune on SQuAD", "answer {data}/squad/dev-v1.1.json",
        "--config.data.max_examples=3000 --config.epochs=1",
    ),
    Measurement(
        "pretrain", "mini without dropout, 16 rows of 128",
        "pretrain --config configs/pretrain.py:mini,laptop --workdir {output}/pretrain "
        "--config.data.corpora={corpus} --config.data.batch_size=16 --config.data.lengths=128 "
        "--config.data.mlm_probability=0.15 --config.data.sentence_objective=next_sentence --config.steps=3000 "
        "--config.model.hidden_dropout_prob=0 --config.model.attention_probs_dropout_prob=0 "
        "--config.embedding_init=random "
        "--config.log.max_eval_batches=80",
        needs=("torch", "transformers"),
    ),
    Measurement(
        "prepare", "WikiText-2", "prepare --input {data}/wikitext-2/train.txt --tokenizer {model} --megabytes 10",
    ),
    Measurement(
        "tokenizers", "XQuAD, 12 languages",
        "tokenizers --vocab {model} {data}/vocab/*vocab* {data}/vocab/albert*.model {data}/vocab/sentencepiece*.model "
        "--text {data}/xquad/*", needs=("transformers",),
    ),
)  # fmt: skip
