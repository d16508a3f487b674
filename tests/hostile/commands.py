"""Thousands of bad or odd commands, of the verbs' own parsers, the configs' own keys, and odd files and models."""

import argparse
import dataclasses
import hashlib
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bert_jax.command import main as cli
from bert_jax.tasks import TASKS
from tests.hostile import edge_values
from tests.support.project import ROOT

LONG = "9" * 5000
# No value of any number.
NO_NUMBERS = ("nan", "inf", "1e999", "-1e999", "1e308", "9" * 30, "x", "")
NUMBERS = (*NO_NUMBERS, "2147483648", "-1", "0", "1.5", "[1]", LONG)
OF_KEYS = ("x", "nan", "-1e999", "1e308", "9" * 30, "2147483648", "-1", "0", "1.5")
CHOICES = ("", "x", "0", "é", LONG)
TRUTHS = ("", "x", "2", "[1]")
LISTS = (
    "nan",
    "inf,1",
    "1e999",
    "1e308,1e308",
    "-1",
    "0",
    "x",
    ",,",
    "9" * 30,
    "1,2,3,4,5",
    "[[1]]",
    "(" * 500,
)
TEXTS = ("", " ", "nowhere/at/all", "/proc/self/mem", "\x1b[31mred\nline", "\udcff", LONG, "..")
PLACES = ("", ".", "x" * 300, "/proc/nowhere/x", "{out}/taken", "{out}/taken.txt", "{out}/taken.txt/x")
OUTPUTS = {"--output", "--workdir", "--report", "--profile", "destination"}

TINY = {
    "model.num_hidden_layers": 1, "model.hidden_size": 32, "model.num_attention_heads": 2,
    "model.intermediate_size": 64, "data.lengths": 24,
    "data.length_ratios": 1, "data.dupe_factor": 2, "data.batch_size": 8, "steps": 2, "log.max_eval_batches": 1,
    "optimizer.warmup_steps": 1,
}  # fmt: skip
GENTLE = {
    "steps": 2, "data.batch_size": 4, "data.max_length": 32, "report": "false", "data.batching": "padded",
    "data.folds": 0,
}  # fmt: skip
TRAINED_ON = {
    "classify": "labelled.jsonl", "tag": "words.conll", "answer": "asked.jsonl", "embed": "pairs.jsonl",
    "sparse": "pairs.jsonl", "late_interaction": "pairs.jsonl", "rerank": "ranked.jsonl",
}  # fmt: skip
UNKNOWN_TO = dict.fromkeys(
    ("embed", "sparse", "late_interaction"), ("data.batching", "data.folds", "report")
) | {"rerank": ("data.batching", "data.folds")}
INDEX = "{out}/index"  # a copy of the material's, which has vectors


@dataclass(frozen=True)
class Case:
    """It `may` end well: what it writes is looked at. `{root}` is the folder of material, `{out}` a new one."""

    name: str
    arguments: tuple[str, ...]
    stdin: str = "/dev/null"
    may: bool = False

    @property
    def copies(self) -> tuple[str, ...]:
        """Folders of the material that are copied into the new one, because the command may change them."""
        return ("index",) if any(word.startswith(INDEX) for word in self.arguments) else ()


def train(task: str, verb: str = "train") -> list[str]:
    spec, settings = f"{ROOT}/configs/{task}.py", {"init": "{root}/masked", **GENTLE}
    if task == "pretrain":
        spec, settings = f"{spec}:tiny", TINY | {"data.corpora": "{root}/corpus"}
    else:
        settings = {key: value for key, value in settings.items() if key not in UNKNOWN_TO.get(task, ())}
        settings["data.train"] = "{root}/" + TRAINED_ON[task]
    flags = [f"--config.{key}={value}" for key, value in settings.items()]
    return [verb, "--config", spec, *(["--workdir", "{out}/run"] if verb == "train" else []), *flags]


TEXT, VOCABULARY = ["--input", "{root}/text.txt"], ["--tokenizer", "{root}/vocabulary"]
# No cluster is there, which is told when all else is right.
NO_CLUSTER = ["--ray", "127.0.0.1:1"]
MINE = [
    "mine", "--model", "{root}/masked", "--data", "{root}/pairs.jsonl", "--margin", "0", "--output", "{out}/made.jsonl",
]  # fmt: skip
RIGHT = {
    "vocab": ["vocab", *TEXT, "--output", "{out}/made", "--size", "400"],
    "prepare": ["prepare", *TEXT, *VOCABULARY, "--output", "{out}/made", "--layout", "sentences",
    "--processes", "1"],
    "inspect": train("pretrain", "inspect"),
    "preflight": [*train("pretrain", "preflight"), "--topology", "v5e:2x2"],
    "train": train("pretrain"),
    "export": ["export", "--output", "{out}/made", "{root}/run"],
    "export adapter": ["export", "--adapter", "{root}/adapter", "--output", "{out}/made", "{root}/masked"],
    "export onnx": [
        "export", "--format", "onnx", "--quantize", "auto", "--calibration-data", "{root}/lines.txt", "--data",
        "{root}/labelled.jsonl", "--output", "{out}/made", "{root}/classifier",
    ],
    "export static": [
        "export", "--format", "static", "--dimensions", "3", "--output", "{out}/made", "{root}/masked",
    ],
    "info": ["info", "{root}/masked"],
    "import": ["import", "{root}/masked", "{out}/made"],
    "fill-mask": ["fill-mask", "--model", "{root}/masked", "w1 [MASK] w2"],
    "embed": ["embed", "--model", "{root}/masked", "--input", "{root}/lines.txt", "--output", "{out}/made.npy"],
    "pairs": ["pairs", "{root}/text.txt", "--output", "{out}/made.jsonl"],
    "evaluate": ["evaluate", "--model", "{root}/classifier", "--data", "{root}/labelled.jsonl", "--json"],
    "predict": [
        "predict", "--model", "{root}/classifier", "--input", "{root}/lines.txt", "--output", "{out}/made.jsonl",
    ],
    "predict zero-shot": [
        "predict", "--model", "{root}/classifier", "--input", "{root}/lines.txt", "--labels", "w1,w2",
        "--hypothesis-template", "{}", "--multi-label", "--output", "{out}/made.jsonl",
    ],
    "predict onnx": [
        "predict", "--model", "{root}/exported", "--engine", "onnxruntime", "--input", "{root}/lines.txt", "--output",
        "{out}/made.jsonl",
    ],
    "predict openvino": [
        "predict", "--model", "{root}/exported", "--engine", "openvino", "--dtype", "bfloat16", "--input",
        "{root}/lines.txt", "--output", "{out}/made.jsonl",
    ],
    "predict --ray": [
        "predict", "--model", "{root}/classifier", "--input", "{root}/lines.txt", "--output", "{out}/made",
        "--remove-missing", *NO_CLUSTER,
    ],
    "embed --ray": [
        "embed", "--model", "{root}/masked", "--input", "{root}/lines.txt", "--output", "{out}/made", *NO_CLUSTER,
    ],
    "prepare --ray bucket": [
        "prepare", "--input", "file://{root}/lines.txt", *VOCABULARY, "--output", "{out}/made", *NO_CLUSTER,
    ],
    "embed --ray bucket": [
        "embed", "--model", "{root}/masked", "--input", "file://{root}/lines.txt", "--output", "file://{out}/made",
        "--quantize", "int8", *NO_CLUSTER,
    ],
    "prepare --ray": ["prepare", *TEXT, *VOCABULARY, "--output", "{out}/made", *NO_CLUSTER],
    "serve": ["serve", "{root}/masked", "--host", "192.0.2.1"],  # of no machine: it cannot listen there
    "serve adapters": [
        "serve", "{root}/masked", "--adapter", "mine={root}/adapter", "--adapter-folder", "{root}", "--host",
        "192.0.2.1",
    ],
    "bench embed": ["bench", "embed", "--model", "{root}/masked", "--input", "{root}/lines.txt"],
    "bench predict": ["bench", "predict", "--model", "{root}/classifier", "--input", "{root}/lines.txt"],
    "bench engines": [
        "bench", "engines", "{root}/classifier", "--data", "{root}/labelled.jsonl", "--calibration-data",
        "{root}/lines.txt", "--texts", "2", "--picture",
        "{out}/made.png",
    ],
    "bench train": ["bench", "train", *train("pretrain", "inspect")[1:]],
    "bench input": ["bench", *train("pretrain", "input")],
    "bench search": ["bench", "search", "{root}/index"],
    "index": ["index", "{root}/labelled.jsonl", "--output", "{out}/made", "--model", "{root}/masked"],
    "index sparse": ["index", "{root}/labelled.jsonl", "--output", "{out}/made", "--sparse-model", "{root}/masked"],
    "index tokens": [
        "index", "{root}/labelled.jsonl", "--output", "{out}/made", "--multi-vector-model", "{root}/tokens",
        "--pool-factor", "2",
    ],
    "index again": ["index", "{root}/labelled.jsonl", "--output", INDEX],
    "index dry": ["index", "{root}/labelled.jsonl", "--output", "{out}/made", "--dry-run"],
    "search": ["search", INDEX, "w1 w2", "--json"],
    "search reranked": ["search", INDEX, "--queries", "{root}/lines.txt", "--rerank", "{root}/ranker", "--json"],
    "search reranked by tokens": ["search", INDEX, "w1 w2", "--rerank", "{root}/tokens", "--explain"],
    "mine": MINE,
    "mine rescored": [*MINE, "--rescore", "{root}/ranker", "--corpus", "{root}/lines.txt"],
    "rerank": ["rerank", "--model", "{root}/ranker", "--input", "{root}/ranked.jsonl", "--output", "{out}/made.jsonl"],
    "score": ["score", "--model", "{root}/masked", "--json", "w1 w2 w3"],
    "check": ["check", INDEX],
    "info index": ["info", INDEX],
    "evaluate index": ["evaluate", "--index", INDEX, "--data", "{root}/judged", "--json"],
    "evaluate over": ["evaluate", "--compare", INDEX, "{root}/masked", "--data", "{root}/judged", "--json"],
    "evaluate embedder": ["evaluate", "--model", "{root}/masked", "--data", "{root}/judged", "--json"],
    "evaluate ranker": ["evaluate", "--model", "{root}/ranker", "--data", "{root}/ranked.jsonl", "--json"],
    "embed quantized": ["embed", "--model", "{root}/masked", "--input", "{root}/lines.txt", "--output", "{out}/made"],
}  # fmt: skip


def cases() -> list[Case]:
    """In an order in which any first part is a sample of them all."""
    made = [*of_flags(), *of_labels(), *of_keys(), *of_sweeps(), *of_files(), *of_models()]
    assert len({case.name for case in made}) == len(made)
    return sorted(
        made, key=lambda case: hashlib.blake2b(case.name.encode("utf-8", "surrogateescape")).digest()
    )


def actions_of(name: str, right: list[str]) -> list[argparse.Action]:
    verb, subject = right[0], name.partition(" ")[2]
    parser: argparse.ArgumentParser = cli.make_parser(verb)
    if verb == "bench":
        nested = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        parser = nested.choices[subject]
    return [
        action for action in parser._actions if action.nargs != 0 and action.dest not in ("config", "texts")
    ]


def of_flags() -> Iterator[Case]:
    """Each flag of each command with each value that is odd for one of its sort."""
    for name, right in RIGHT.items():
        for action in actions_of(name, right):
            flag = action.option_strings[-1] if action.option_strings else action.dest
            if flag in OUTPUTS:
                values = PLACES
            elif action.choices:
                values = CHOICES
            else:
                values = NUMBERS if action.type else TEXTS
            for value in values[:: 4 if name.startswith("bench") else 1]:
                changed = with_flag(right, action, value)
                named = f"{name} {flag}"
                yield Case(f"{named}={value:.40}", changed, may=value in MAY_FLAGS.get(named, ()))


PRECISIONS = (
    "nowhere=0.9", "=0.9", "nowhere=", "nowhere=nan", "nowhere=2", f"{LONG}=0.9", "\x1b[31mred\nline=0.9", "0.9 0.8",
    "nowhere=0.9 nowhere=0.8", "0.9 nowhere=0.8",
)  # fmt: skip


def of_labels() -> Iterator[Case]:
    """Precisions of labels that there are not, and probabilities of labels where there are none."""
    for given in PRECISIONS:
        arguments = (*RIGHT["predict"], "--min-precision", *given.split(" "))
        yield Case(f"predict --min-precision {given:.40}", arguments)
    for model, verb in (("tagger", "predict tags"), ("finder", "predict answers")):
        arguments = (*OPENING[model][verb], "--output", "{out}/made.csv", "--probabilities")
        yield Case(f"{verb} --probabilities", arguments)


def with_flag(right: list[str], action: argparse.Action, value: str) -> tuple[str, ...]:
    if not action.option_strings:
        place = {
            "source": 1,
            "workdir": 1,
            "documents": 1,
            "index": 1,
            "models": 1,
            "query": 2,
            "destination": 2,
        }.get(action.dest, len(right) - 1)
        return (*right[:place], value, *right[place + 1 :])
    flag = action.option_strings[-1]
    kept = [word for n, word in enumerate(right) if flag not in (word, right[n - 1])]
    return (*kept, f"{flag}={value}")


def of_keys() -> Iterator[Case]:
    """Each key of each task's config with each value that is odd for its type; one that tasks share, of the first."""
    tried: set[str] = set()
    for task in ("pretrain", "classify", "embed", "rerank", "sparse", "late_interaction"):
        known = {key for key in tried if task != "classify" or not key.startswith(("data.", "model."))}
        for key, kind in keys_of(TASKS[task].Config):
            tried.add(key)
            for value in () if key in known else values_of(kind):
                arguments = (*without(train(task), key), f"--config.{key}={value}")
                yield Case(f"train {task} {key}={value:.40}", arguments, may=value in MAY_KEYS.get(key, ()))


def keys_of(reader: type, where: str = "") -> Iterator[tuple[str, type]]:
    hints = typing.get_type_hints(reader)
    for field in dataclasses.fields(reader):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from keys_of(hints[field.name], f"{where}{field.name}.")
        elif field.init:
            yield where + field.name, hints[field.name]


def values_of(kind: type) -> tuple[str, ...]:
    if kind in (int, float):
        return OF_KEYS
    if kind is bool:
        return TRUTHS
    if typing.get_origin(kind) is tuple:
        return LISTS if typing.get_args(kind)[0] in (int, float) else (*TEXTS, "a,a", "a")
    return CHOICES if typing.get_origin(kind) is typing.Literal else TEXTS


def without(arguments: list[str], key: str) -> list[str]:
    return [word for word in arguments if not word.startswith(f"--config.{key}=")]


SWEEPS = {
    "no values": "lr=[]", "no name": "=[1,2]", "half": "lr=[1e-3", "unknown": "lrr=[1,2]", "text": "lr=[a,b]",
    "nan": "lr=[nan]", "twice": "lr=[1e-3];lr=[2e-3]", "task": "task=[embed,rerank]", "itself": "sweep=['',lr]",
    "seeds": "num_seeds=[1,2]", "gone": "init=[{root}/masked,{root}/nowhere]", "negative": "steps=[-5,2]",
    "sections": "optimizer=[1]", "deep": "lr=" + "[" * 500, "empty": ";;", "workdir": "workdir=[a,b]",
    "many": "seed=[" + ",".join(map(str, range(3000))) + "]", "path": "seed=[../../x]",
}  # fmt: skip


def of_sweeps() -> Iterator[Case]:
    for task in ("embed", "rerank"):
        for name, sweep in SWEEPS.items():
            yield Case(f"train {task} sweep of {name}", (*train(task), f"--config.sweep={sweep}"))


def of_files() -> Iterator[Case]:
    """Each verb that reads texts or tables with each odd file, by name and on standard input."""
    readers = {
        "vocab": ["vocab", "--output", "{out}/made", "--size", "400", "--input"],
        "prepare": [*without_input(RIGHT["prepare"]), "--input"],
        "embed": ["embed", "--model", "{root}/masked", "--input"],
        "pairs": ["pairs", "--output", "{out}/made.jsonl"],
        "predict": ["predict", "--model", "{root}/classifier", "--input"],
        "predict tags": ["predict", "--model", "{root}/tagger", "--input"],
        "predict answers": ["predict", "--model", "{root}/finder", "--input"],
        "evaluate": ["evaluate", "--model", "{root}/classifier", "--json", "--data"],
        "evaluate tags": ["evaluate", "--model", "{root}/tagger", "--json", "--data"],
        "evaluate answers": ["evaluate", "--model", "{root}/finder", "--json", "--data"],
        "index": ["index", "--output", "{out}/made"],
        "index again": ["index", "--output", INDEX],
        "search": ["search", INDEX, "--json", "--queries"],
        "mine": ["mine", "--model", "{root}/masked", "--output", "{out}/made.jsonl", "--data"],
        "mine from": [*MINE, "--corpus"],
        "rerank": ["rerank", "--model", "{root}/ranker", "--input"],
        "evaluate embedder": ["evaluate", "--model", "{root}/masked", "--json", "--data"],
        "evaluate index": ["evaluate", "--index", INDEX, "--json", "--data"],
        "check": ["check"],
    }
    names = [*edge_values.contents(), "folder", "unmounted", "loop.txt", "gone.txt"]
    for file in names:
        path = "{root}/odd/" + file
        for reader, arguments in readers.items():
            yield Case(f"{reader} of {file}", (*arguments, path), may=may_read(file))
        yield Case(f"remove @{file}", ("index", "--output", INDEX, "--remove", f"@{path}"))
        for task in TRAINED_ON:
            arguments = (*without(train(task), "data.train"), f"--config.data.train={path}")
            yield Case(f"train {task} of {file}", arguments, may=may_read(file))
    for file in edge_values.contents():
        for reader in ("embed", "predict", "fill-mask") if file.endswith(".txt") else ():
            arguments = (reader, "--model", "{root}/" + ("classifier" if reader == "predict" else "masked"))
            yield Case(f"{reader} < {file}", arguments, "{root}/odd/" + file, may_read(file))


def without_input(arguments: list[str]) -> list[str]:
    place = arguments.index("--input")
    return arguments[:place] + arguments[place + 2 :]


# Model -> the verbs that open it.
OPENING: dict[str, dict[str, list[str]]] = {
    "masked": {
        "vocab --extend": ["vocab", *TEXT, "--output", "{out}/made", "--extend", "{root}/masked"],
        "train pretrain": [
            *train("pretrain"), "--config.init={root}/masked", "--config.model.num_hidden_layers=2",
            "--config.model.max_position_embeddings=32",
        ],
        "train classify": train("classify"),
        "train embed": train("embed"),
        "search": ["search", INDEX, "w1", "--model", "{root}/masked"],
        **{name: RIGHT[name] for name in (
            "info", "import", "fill-mask", "embed", "index", "index sparse", "mine", "score", "evaluate embedder",
        )},
    },
    "classifier": {
        "info": ["info", "{root}/classifier"],
        "import": ["import", "{root}/classifier", "{out}/made"],
        "embed": ["embed", "--model", "{root}/classifier", "--input", "{root}/lines.txt"],
        **{name: RIGHT[name] for name in ("evaluate", "predict")},
    },
    "tagger": {
        "evaluate tags": ["evaluate", "--model", "{root}/tagger", "--data", "{root}/words.conll", "--json"],
        "predict tags": ["predict", "--model", "{root}/tagger", "--input", "{root}/words.conll"],
    },
    "finder": {
        "evaluate answers": ["evaluate", "--model", "{root}/finder", "--data", "{root}/asked.jsonl", "--json"],
        "predict answers": ["predict", "--model", "{root}/finder", "--input", "{root}/asked.jsonl"],
    },
    "ranker": {
        name: RIGHT[name] for name in ("search reranked", "mine rescored", "rerank", "evaluate ranker")
    },
    "tokens": {name: RIGHT[name] for name in ("index tokens", "search reranked by tokens")},
}  # fmt: skip


def of_models() -> Iterator[Case]:
    """Each verb that opens a model with each odd model."""
    for name, verbs in OPENING.items():
        for kind in [*edge_values.WEIGHTS, *(edge_values.TEMPERATURES if name == "classifier" else ())]:
            for verb, right in verbs.items():
                arguments = tuple(word.replace("{root}/" + name, f"{{root}}/{name}-{kind}") for word in right)
                # `info` tells what is wrong with weights, and reads no calibration.
                yield Case(f"{verb} with {name}-{kind}", arguments, may=verb == "info" or kind == "huge")
    for model in (f"masked-{kind}" for kind in edge_values.WEIGHTS if kind != "huge"):
        yield Case(f"serve with {model}", ("serve", "{root}/" + model, "--port", "0"))
    for given in ("a={root}/masked a={root}/masked", "{root}/masked {root}/masked", "={root}/masked"):
        yield Case(f"serve {given}", ("serve", *given.split(" "), "--port", "0"))
    for name in ("repeats", "blanks", "nuls", "specials"):
        arguments = ["{root}/vocabulary-" + name if a == "{root}/vocabulary" else a for a in RIGHT["prepare"]]
        yield Case(f"prepare with vocabulary-{name}", tuple(arguments), may=name in ("repeats", "blanks"))


# What may be right, and is then looked at.
GIVEN = tuple(text for text in TEXTS if text)
ZERO, MINUS, HALF, NONE = ("0",), ("-1", "0"), ("0", "1.5"), ("",)
COLUMNS = ("--text", "--text-pair", "--id", "--title", "--label")
MAY_FLAGS: dict[str, tuple[str, ...]] = {
    **{f"{name} {column}": NONE for name in RIGHT for column in COLUMNS},
    "prepare --validation-ratio": ("0",),
    "vocab --input": ("..",), "inspect --step": ("0",), "train --workdir": (".", "{out}/taken"),
    "evaluate --label-separator": GIVEN, "evaluate --report": (".", "{out}/taken"),
    "predict --output": ("{out}/taken.txt",), "predict zero-shot --output": ("{out}/taken.txt",),
    "predict zero-shot --labels": TEXTS, "pairs --text": TEXTS, "pairs --id": TEXTS,
    "pairs --title": TEXTS,
    "pairs --output": ("{out}/taken.txt",),
    "index documents": ("..",), "index sparse documents": ("..",), "index again documents": ("..",),
    "index tokens documents": ("..",),
    "index dry documents": ("..",),
    "evaluate embedder --split": NONE, "evaluate ranker --split": NONE,
    "evaluate over --split": NONE, "index dry --overlap": ZERO,
    "index --overlap": ZERO, "index again --overlap": ZERO, "index sparse --overlap": ZERO,
    "index tokens --overlap": ZERO, "index tokens --pool-factor": ("2147483648", "1.5", "9" * 30),
    "search query": tuple(text for text in TEXTS if text.strip()),
    "search reranked by tokens query": tuple(text for text in TEXTS if text.strip()),
    "mine --cache": GIVEN, "mine rescored --cache": GIVEN, "mine --output": ("{out}/taken.txt",),
    "mine rescored --output": ("{out}/taken.txt",), "rerank --output": ("{out}/taken.txt",),
    "mine --range-min": ZERO, "mine rescored --range-min": ZERO, "mine --margin": ZERO, "mine rescored --margin": ZERO,
    "mine --min-score": MINUS, "mine rescored --min-score": MINUS,
    "mine rescored --max-score": ("2147483648", "0", "1.5", "9" * 30),
    "evaluate ranker --label-separator": GIVEN,
}  # fmt: skip
MAY_KEYS: dict[str, tuple[str, ...]] = {
    "seed": ("2147483648", "-1", "0"), "steps": MINUS, "init": NONE, "first_step": ZERO, "patience": ZERO,
    "sweep": ("", " "),
    "optimizer.learning_rate": HALF, "optimizer.warmup_steps": ZERO, "optimizer.decay_ratio": ZERO,
    "optimizer.weight_decay": HALF, "optimizer.beta1": ZERO, "optimizer.beta2": ZERO,
    "optimizer.max_grad_norm": HALF,
    "optimizer.layer_decay": ZERO, "optimizer.frozen_layers": MINUS, "mesh.data": ("-1",), "mesh.fsdp": ("-1",),
    "mesh.tensor": ("-1",), "checkpoints.keep_every": ZERO, "checkpoints.best_metric": NONE,
    "log.max_eval_batches": ZERO, "log.profile": MINUS, "family": NONE, "model.embedding_size": ZERO,
    "model.mlm_activation": NONE, "model.layer_norm_eps": ZERO, "model.hidden_dropout_prob": MINUS,
    "model.attention_probs_dropout_prob": MINUS,
    "model.head_dropout": MINUS, "model.tag_dropout": MINUS, "model.answer_dropout": ZERO,
    "model.initializer_range": ZERO,
    "model.relative.terms": ("", " "),
    "model.relative.buckets": ZERO, "model.relative.max_distance": ZERO, "model.rotary.theta": ZERO,
    "model.rotary.local_theta": ZERO, "model.local_attention.window": ZERO, "model.convolution.width": ZERO,
    "model.layer_groups": ZERO, "model.query_length": ZERO, "data.weights": (",,", "[[1]]", "(" * 500),
    "data.alpha": HALF,
    "data.length_ratios": ("[[1]]",),
    "data.short_seq_prob": ZERO, "data.mlm_probability": ZERO, "data.max_predictions_per_seq": ZERO,
    "data.mask_replace_prob": ZERO, "data.random_replace_prob": ZERO, "epochs": HALF, "data.folds": MINUS,
    "data.fold_index": ("-1",), "data.validation": NONE, "data.out_of_scope": NONE, "data.calibration_ratio": ZERO,
    "data.columns.text": NONE, "data.columns.text_pair": NONE, "data.columns.label": NONE, "data.columns.id": NONE,
    "data.columns.group": NONE, "data.columns.label_separator": TEXTS, "data.max_examples": ZERO,
    "data.overlap": ZERO,
    "labels": ("", " "), "label_smoothing": ZERO,
    "data.columns.score": NONE, "data.columns.texts": ("", " "), "data.max_documents_per_query": ZERO,
    "data.num_random_negatives": MINUS, "data.mixture_weights": (",,",), "loss.scale": HALF, "model.dimensions": ZERO,
    "loss.document_regularizer_weight": HALF, "loss.query_regularizer_weight": (*MINUS, "1.5"),
    "loss.margin": ZERO, "init_share": MINUS, "minutes": HALF,
    "loss.sizes": (",,", "1,2,3,4,5"), "loss.teacher": NONE, "prompts.query": TEXTS, "prompts.document": TEXTS,
}  # fmt: skip


@cache
def may_read(file: str) -> bool:
    """Whether some verb can read what a file holds: plain text, or a table."""
    content = edge_values.contents().get(file, "")
    content = content if isinstance(content, bytes) else content.encode()
    is_packed = file.endswith((".gz", ".xz", ".bz2", ".zst", ".parquet"))
    return file == "odd.parquet" or bool(content) and b"\0" not in content and not is_packed


def fill_in(case: Case, root: Path, out: Path) -> tuple[list[str], str]:
    places = {"{root}": str(root), "{out}": str(out)}

    def fill(word: str) -> str:
        for place, path in places.items():
            word = word.replace(place, path)
        return word

    return [fill(word) for word in case.arguments], fill(case.stdin)
