"""The order of the package from top to bottom, of its folders and of files inside them."""

ORDER = (
    "core", "metrics", "text", "data", "models", "losses", "hub", "predictions", "inference", "training", "finetuning",
    "tasks", "search", "report", "runs", "sklearn", "export", "serve", "cluster", "pod", "bench", "command", "__main__",
)  # fmt: skip
# Files and folders inside a folder, where one thing follows from the other.
INSIDE = {
    "text": ("tables", "text_source", "sentences", "encoding", "tokenizer", "vocabulary_training"),
    "data": ("batch_source", "corpus", "examples", "shards"),
    "models": ("encoder_config", "layers", "blocks", "layer_stack", "mask_decoder", "encoder", "heads", "pooling",
               "bert"),
    "training": ("run_config", "workdir", "task", "state", "step", "loop", "opened_run"),
    "finetuning": ("epochs_config", "finetune_config", "example_splits", "linear_probe", "cross_validation",
                   "choose_method", "finetune_task"),
    "search": ("documents", "passages", "segment", "index_reader", "index_writer", "index_update", "index"),
}  # fmt: skip
