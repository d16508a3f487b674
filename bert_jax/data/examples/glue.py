"""The columns, labels and metrics of GLUE's nine tasks.

The data are `tfds:glue/NAME:SPLIT`, or the .tsv files in the folders that GLUE distributes, such as CoLA/train.tsv and
SST-2/dev.tsv.
"""

from dataclasses import dataclass
from pathlib import Path

from bert_jax.core.errors import BertJaxError, suggest_name


@dataclass(frozen=True)
class GlueTask:
    folder: str  # of the .tsv files
    texts: tuple[str, ...]
    labels: tuple[str, ...]  # in GLUE's order; () if the label is a number
    metric: str  # the metric that GLUE ranks by, or the first of them
    # The columns of the .tsv files, if they differ from those of tfds.
    tsv_label: str = "label"
    tsv_texts: tuple[str, ...] = ()
    validation: str = "validation"  # split of tfds

    @property
    def kind(self) -> str:
        return "classes" if self.labels else "number"


SENTENCES = ("sentence1", "sentence2")
GLUE_TASKS = {
    "cola": GlueTask("CoLA", ("sentence",), ("unacceptable", "acceptable"), "matthews", "1", ("3",)),
    "sst2": GlueTask("SST-2", ("sentence",), ("negative", "positive"), "accuracy"),
    "mrpc": GlueTask("MRPC", SENTENCES, ("not_equivalent", "equivalent"), "f1", "Quality", ("#1 String", "#2 String")),
    "stsb": GlueTask("STS-B", SENTENCES, (), "pearson", "score"),
    "qqp": GlueTask("QQP", ("question1", "question2"), ("not_duplicate", "duplicate"), "f1", "is_duplicate"),
    "mnli": GlueTask("MNLI", ("premise", "hypothesis"), ("entailment", "neutral", "contradiction"), "accuracy",
                 "gold_label", SENTENCES, "validation_matched"),
    "qnli": GlueTask("QNLI", ("question", "sentence"), ("entailment", "not_entailment"), "accuracy"),
    "rte": GlueTask("RTE", SENTENCES, ("entailment", "not_entailment"), "accuracy"),
    "wnli": GlueTask("WNLI", SENTENCES, ("not_entailment", "entailment"), "accuracy"),
}  # fmt: skip


def find_glue_task(spec: str) -> GlueTask | None:
    """Return the task whose data `spec` names; None if it is not GLUE data."""
    if spec.startswith("tfds:glue/"):
        name = spec.removeprefix("tfds:glue/").partition(":")[0]
        if name not in GLUE_TASKS:
            raise BertJaxError(f"{spec} is not one of GLUE's nine tasks; {suggest_name(name, GLUE_TASKS)}")
        return GLUE_TASKS[name]
    path = Path(spec)
    if ".tsv" not in path.suffixes:
        return None
    return next((task for task in GLUE_TASKS.values() if task.folder == path.absolute().parent.name), None)


def glue_columns(spec: str, task: GlueTask) -> tuple[tuple[str, ...], str]:
    """Return (columns of the texts, column of the label)."""
    if spec.startswith("tfds:"):
        return task.texts, "label"
    # Only CoLA's files have no header, and even its test.tsv has one.
    has_header = Path(spec).name.startswith("test") and task.folder == "CoLA"
    return (not has_header and task.tsv_texts) or task.texts, task.tsv_label
