"""`bert-jax check`: check the files of a corpus, a run, an index or a model directory for damage."""

from collections.abc import Iterator
from pathlib import Path

from bert_jax.core import hashes
from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import pluralize
from bert_jax.data.corpus.corpus_directory import Corpus
from bert_jax.hub.hf_config import CONFIGS
from bert_jax.hub.layout_warnings import layout_warnings
from bert_jax.hub.model_directory import ModelDirectory
from bert_jax.hub.weights import read_weight
from bert_jax.search import index_manifest as manifests
from bert_jax.search.index import Index
from bert_jax.text.tokenizer_directory import open_tokenizer
from bert_jax.training.best_evaluation import is_out_of_patience
from bert_jax.training.checkpoint import CheckpointFolder, find_damage
from bert_jax.training.workdir import Workdir

LISTED = 6  # file names that a line shows


def check_directory(path: str) -> str:
    """Return the lines that say what was checked; raise an error that names what is damaged."""
    directory = Path(path)
    if not directory.exists():
        raise BertJaxError(f"{path} does not exist; name a corpus, a run, an index or a model directory")
    if (directory / "run.json").is_file():
        lines = check_run(directory)
    elif (directory / "manifest.json").is_file():
        lines = check_corpus(directory)
    elif manifests.is_index(directory):
        lines = check_index(directory)
    elif (directory / hashes.FILE).is_file() or any((directory / name).is_file() for name in CONFIGS):
        lines = check_model(directory)
    else:
        raise BertJaxError(
            f"{path} is not a corpus, run, index or model: it has no manifest.json, run.json, index.json or config.json"
        )
    return "\n".join(lines)


def check_corpus(directory: Path) -> Iterator[str]:
    corpus = Corpus(directory, rehash=True)
    assert corpus.tokenizer  # opening it checks that its ids are those of the corpus
    files = corpus.manifest["files"]
    yield f"{directory}: {len(files)} files of a corpus; their hashes match"


def check_run(directory: Path) -> Iterator[str]:
    """Check the settings, the tokenizer, the checkpoints and the models of a run; yield lines that say so."""
    workdir = Workdir(directory)
    names = workdir.layouts()
    open_tokenizer(workdir.tokenizer)
    yield f"{workdir.run} can be read; its hash matches"
    checkpoints = CheckpointFolder(workdir.checkpoints)
    steps = checkpoints.steps()
    damaged = [(step, wrong) for step in steps if (wrong := find_damage(workdir.checkpoints / str(step)))]
    if damaged:
        step, wrong = damaged[0]
        raise BertJaxError(
            f"{workdir.checkpoints / str(step)}: {wrong}; {len(damaged)} of {len(steps)} checkpoints are damaged; "
            "delete them, and the run resumes from the newest that is whole"
        )
    yield f"{workdir.checkpoints}: {pluralize(len(steps), 'checkpoint')}; their hashes match"
    wrote_models = workdir.model.is_dir() or has_finished(workdir, checkpoints)
    for name in names:
        if (workdir.model / name).is_dir():
            yield from check_model(workdir.model / name)
        elif wrote_models:
            raise BertJaxError(
                f"{workdir.model / name} is missing; repeat the command of the run, which writes it again"
            )


def has_finished(workdir: Workdir, checkpoints: CheckpointFolder) -> bool:
    """Whether a run has taken its last step, after which it writes its models."""
    if not (steps := checkpoints.steps()):
        return False
    settings = workdir.read_run()["config"]
    standings = checkpoints.read_position(steps[-1]).get("standings", [])
    return steps[-1] == settings["steps"] or is_out_of_patience(standings, settings["patience"])


def check_index(directory: Path) -> Iterator[str]:
    index = Index.open(directory, verify=True)
    files = len(list(index.manifest.files()))
    yield f"{directory}: {files + 1} files of an index of {len(index):,} documents; their hashes match"


def check_model(directory: Path) -> Iterator[str]:
    """Check the hashes of a model directory, or its structure if it has no hashes."""
    files = hashes.read_hashes(directory)
    if files is None:
        check_structure(directory)
        yield (
            f"{directory}: it has no {hashes.FILE}, so only its structure was checked: config, tokenizer and weights "
            "can be read and belong together"
        )
        return
    if wrong := list(hashes.find_damaged_files(directory, files)):
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise BertJaxError(
            f"{directory}: {wrong[0]}{more}; copy the directory again, or delete {hashes.FILE} if the change is yours"
        )
    yield f"{directory}: {len(files)} files of a model; their hashes match"
    if others := sorted(set(hashes.list_file_names(directory)) - set(files)):
        shown = ", ".join(others[:LISTED]) + (f" and {len(others) - LISTED} more" if others[LISTED:] else "")
        yield f"{directory}: files that were not saved with the model: {shown}"


def check_structure(directory: Path) -> None:
    """Refuse a model directory whose parts cannot be read or do not fit together."""
    model = ModelDirectory.open(directory)
    model.check_tensors(model.layout)
    unread = model.unread_tensors
    for name in model.tensors:
        if name not in unread:
            read_weight(model.tensors, name, directory)
    layout_warnings(model)
