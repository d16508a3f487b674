"""A command of each verb that writes something, and what it writes."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.support.pretraining_runs import train_command


@dataclass(frozen=True)
class Case:
    """`result` is below the folder that the command writes to; `again`: a whole result is written anew, not refused."""

    arguments: Callable[[Path, Path], Iterable]  # of the material and the folder
    result: str
    again: bool = True

    def contents(self, folder: Path) -> dict[str, bytes] | None:
        """The files of the result, wherever the folder is; None where it is absent."""
        path = folder / self.result
        if not path.exists():
            return None
        files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
        # A report says by which command it was written.
        return {
            str(file.relative_to(folder)): file.read_bytes().replace(bytes(folder), b"") for file in files
        }

    def listing(self, folder: Path) -> tuple[list[str], list[str]]:
        """What stands in the folder beside the result, and all that looks like a leftover."""
        left = [path.name for path in folder.rglob("*") if ".partial" in path.name or "-tmp" in path.name]
        return sorted(path.name for path in folder.iterdir()), left


def training(small: Path, folder: Path) -> list[str]:
    settings = {"steps": 12, "checkpoints.every": 3, "log.evaluate_every": 6, "optimizer.warmup_steps": 2}
    return train_command(small / "corpus", folder / "run", **settings)[3:]


CASES = {
    "vocab": Case(lambda small, folder: [
        "vocab", "--input", small / "text.txt", "--size", 2000, "--output", folder / "vocab"], "vocab", again=False),
    "prepare": Case(lambda small, folder: [
        "prepare", "--input", small / "text.txt", "--layout", "sentences", "--tokenizer", small / "vocabulary",
        "--processes", 1, "--output", folder / "corpus"], "corpus", again=False),
    "train": Case(training, "run/model"),
    "export": Case(lambda small, folder: ["export", small / "run", folder / "model"], "model"),
    "import": Case(lambda small, folder: ["import", small / "masked", folder / "model"], "model", again=False),
    "predict": Case(lambda small, folder: [
        "predict", "--model", small / "classifier", "--input", small / "many.txt", "--output", folder / "out.jsonl"],
        "out.jsonl"),
    "embed": Case(lambda small, folder: [
        "embed", "--model", small / "masked", "--input", small / "many.txt", "--output", folder / "out.npy"],
        "out.npy"),
    "pairs": Case(lambda small, folder: [
        "pairs", small / "many.txt", "--output", folder / "pairs.jsonl"], "pairs.jsonl"),
    "mine": Case(lambda small, folder: [
        "mine", "--model", small / "masked", "--data", small / "pairs.jsonl", "--margin", 0, "--output",
        folder / "mined.jsonl"], "mined.jsonl"),
    "index --export": Case(lambda small, folder: [
        "index", "--output", small / "index", "--export", folder / "index.parquet"], "index.parquet"),
    "evaluate": Case(lambda small, folder: [
        "evaluate", "--model", small / "classifier", "--data", small / "labelled.jsonl", "--report", folder / "report"],
        "report"),
}  # fmt: skip


def material(small: Path) -> Path:
    """What the commands read beside what `material.make` makes."""
    from bert_jax.command.main import main
    from tests.hostile import material

    lines = material.sentences(2000)
    (small / "many.txt").write_text("\n".join(lines) + "\n")
    rows = ({"anchor": a, "positive": b} for a, b in zip(lines[::2], lines[1::2], strict=True))
    (small / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if not (small / "index").exists():
        assert main(["index", str(small / "many.txt"), "--output", str(small / "index")]) == 0
    if not (small / "run").exists():
        material.run(small, small / "run")
    return small
