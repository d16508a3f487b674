"""A command of each verb that writes something, and what it writes."""

import json
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from bert_jax.hub.sparse_encoder import SparseSettings
from bert_jax.search.index_manifest import INDEX_FILE, read_index_manifest
from tests.support.pretraining_runs import train_command

NUMBERS = r"(\d{6})(-\d{6})?"  # of the changes that wrote a file of an index


@dataclass(frozen=True)
class Case:
    """`result` is below the folder that the command writes to; `again`: a whole result is written anew, not refused."""

    arguments: Callable[[Path, Path], Iterable]  # of the material and the folder
    result: str
    again: bool = True
    finishes_after: str = (
        ""  # the last file before it writes the result; "": it writes the result from its first file
    )

    def begin(self, small: Path, folder: Path) -> None:
        """Put into the folder what must be there before the command."""

    def contents(self, folder: Path) -> dict[str, bytes] | None:
        """The files of the result; None where it is absent."""
        path = folder / self.result
        if not path.exists():
            return None
        files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
        return {str(file.relative_to(folder)): file.read_bytes() for file in files}

    def listing(self, folder: Path) -> tuple[list[str], list[str]]:
        """What stands in the folder beside the result, and all that looks like a leftover."""
        left = [path.name for path in folder.rglob("*") if ".partial" in path.name or "-tmp" in path.name]
        return sorted(path.name for path in folder.iterdir()), left


@dataclass(frozen=True)
class IndexCase(Case):
    """Makes an index, or changes one that is there. Its result is what the index holds, by whatever names."""

    result: str = "index"
    begins: bool = True

    def begin(self, small: Path, folder: Path) -> None:
        if self.begins:
            shutil.copytree(small / "indexed", folder / self.result)

    def contents(self, folder: Path) -> dict[str, bytes] | None:
        """None also of an index that is still what it was before the command."""
        path = folder / self.result
        if not (path / INDEX_FILE).exists():
            return None
        manifest = read_index_manifest(path)
        if manifest.changes == (1 if self.begins else 0):
            return None
        numbers = {segment.name: str(number) for number, segment in enumerate(manifest.segments)}
        files = {re.sub(NUMBERS, lambda name: numbers[name[1]], name): name for name, _ in manifest.files()}
        settings = {"settings": repr(replace(manifest, segments=(), changes=0)).encode()}
        return settings | {name: (path / file).read_bytes() for name, file in files.items()}

    def listing(self, folder: Path) -> tuple[list[str], list[str]]:
        names, left = super().listing(folder)
        paths = [str(path.relative_to(folder)) for path in (folder / self.result).glob("*/*")]
        return names, left + [re.sub(NUMBERS, "N", path) for path in paths]


def training(small: Path, folder: Path) -> list[str]:
    settings = {"steps": 12, "checkpoints.every": 3, "log.evaluate_every": 6, "optimizer.warmup_steps": 2}
    return train_command(small / "corpus", folder / "run", **settings)[3:]


def sparse_training(small: Path, folder: Path) -> list:
    return train_task("sparse", small, folder, data__train=small / "pairs.jsonl", data__batch_size=8)


def classifier_training(small: Path, folder: Path) -> list:
    """Train a model with a calibration, a detector of texts that are out of scope, and a report."""
    values = {"data__folds": 0, "data__calibration_ratio": 0.5, "data__max_length": 32, "method": "finetune"}
    return train_task("classify", small, folder, data__train=small / "labelled.jsonl", **values)


def train_task(task: str, small: Path, folder: Path, **values) -> list:
    values |= {"init": small / "masked", "steps": 6, "checkpoints__every": 3}
    keys = [f"--config.{name.replace('__', '.')}={value}" for name, value in values.items()]
    return ["train", "--config", task, "--workdir", folder / "run", *keys]


@dataclass(frozen=True)
class LastStepCase(Case):
    """Ends a training whose steps are all done."""

    def begin(self, small: Path, folder: Path) -> None:
        from bert_jax.command.main import main

        made = small / f"last step of {self.arguments.__name__}"
        if not made.exists():
            assert main([str(word) for word in self.arguments(small, made)]) == 0
            for result in ("model", "report"):
                shutil.rmtree(made / "run" / result, ignore_errors=True)
            (made / "run/finished.json").unlink()
        shutil.copytree(made / "run", folder / "run")


CASES = {
    "vocab": Case(lambda small, folder: [
        "vocab", "--input", small / "text.txt", "--size", 2000, "--output", folder / "vocab"], "vocab", again=False),
    "prepare": Case(lambda small, folder: [
        "prepare", "--input", small / "text.txt", "--layout", "sentences", "--tokenizer", small / "vocabulary",
        "--processes", 1, "--output", folder / "corpus"], "corpus", again=False),
    "train": Case(training, "run/model"),
    "train sparse": LastStepCase(sparse_training, "run/model"),
    "train classify": LastStepCase(classifier_training, "run/model"),
    "export": Case(lambda small, folder: [
        "export", small / "run", "--output", folder / "model"], "model", again=False),
    "export --adapter": Case(lambda small, folder: [
        "export", small / "masked", "--adapter", small / "adapter", "--output", folder / "model"], "model",
        again=False),
    "export --format onnx": Case(lambda small, folder: [
        "export", small / "masked", "--format", "onnx", "--output", folder / "model"], "model", again=False),
    "export --format static": Case(lambda small, folder: [
        "export", small / "masked", "--format", "static", "--output", folder / "model"], "model", again=False),
    "import": Case(lambda small, folder: ["import", small / "masked", folder / "model"], "model", again=False),
    "predict": Case(lambda small, folder: [
        "predict", "--model", small / "classifier", "--input", small / "many.txt", "--output", folder / "out.jsonl"],
        "out.jsonl"),
    "embed": Case(lambda small, folder: [
        "embed", "--model", small / "masked", "--input", small / "many.txt", "--output", folder / "out.npy"],
        "out.npy"),
    "embed to .npz": Case(lambda small, folder: [
        "embed", "--model", small / "sparse", "--input", small / "many.txt", "--output", folder / "out.npz"],
        "out.npz"),
    "embed tokens": Case(lambda small, folder: [
        "embed", "--model", small / "tokens", "--input", small / "many.txt", "--output", folder / "out.npz"],
        "out.npz"),
    "pairs": Case(lambda small, folder: [
        "pairs", small / "many.txt", "--output", folder / "pairs.jsonl"], "pairs.jsonl"),
    "mine": Case(lambda small, folder: [
        "mine", "--model", small / "masked", "--data", small / "pairs.jsonl", "--margin", 0, "--output",
        folder / "mined.jsonl"], "mined.jsonl"),
    "index --export": Case(lambda small, folder: [
        "index", "--output", small / "index", "--export", folder / "index.parquet"], "index.parquet"),
    "index": IndexCase(lambda small, folder: [
        "index", small / "documents.jsonl", "--model", small / "masked", "--output", folder / "index"], begins=False),
    "index --sparse-model": IndexCase(lambda small, folder: [
        "index", small / "documents.jsonl", "--sparse-model", small / "sparse", "--output", folder / "index"],
        begins=False),
    "index --multi-vector-model": IndexCase(lambda small, folder: [
        "index", small / "documents.jsonl", "--multi-vector-model", small / "tokens", "--output", folder / "index"],
        begins=False),
    "index DOCS": IndexCase(lambda small, folder: [
        "index", small / "more.jsonl", "--output", folder / "index", "--replace"]),
    "index --remove": IndexCase(lambda small, folder: [
        "index", "--output", folder / "index", "--remove", *range(0, 200, 3)], again=False),
    "index --compact": IndexCase(lambda small, folder: ["index", "--output", folder / "index", "--compact"]),
    "evaluate": Case(lambda small, folder: [
        "evaluate", "--model", small / "classifier", "--data", small / "labelled.jsonl", "--report", folder / "report"],
        "report", again=False),
}  # fmt: skip


def material(small: Path) -> Path:
    """What the commands read beside what `material.make` makes."""
    from bert_jax.command.main import main
    from tests.hostile import material

    lines = material.sentences(2000)
    (small / "many.txt").write_text("\n".join(lines) + "\n")
    rows = ({"anchor": a, "positive": b} for a, b in zip(lines[::2], lines[1::2], strict=True))
    (small / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, numbers in (("documents", range(200)), ("more", range(150, 300))):
        documents = ({"id": str(n), "text": " ".join(lines[n : n + 1 + n % 5])} for n in numbers)
        (small / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in documents))
    if not (small / "sparse").exists():
        material.model(
            small / "sparse", small / "vocabulary", ("mlm",), sparse=SparseSettings(query_weights=True)
        )
    if not (small / "tokens").exists():
        material.model(small / "tokens", small / "vocabulary", multi_vector=material.TOKEN_VECTORS)
    if not (small / "indexed").exists():
        flags = ["--model", str(small / "masked"), "--output", str(small / "indexed")]
        assert main(["index", str(small / "documents.jsonl"), *flags]) == 0
    if not (small / "index").exists():
        assert main(["index", str(small / "many.txt"), "--output", str(small / "index")]) == 0
    if not (small / "run").exists():
        material.run(small, small / "run")
    return small
