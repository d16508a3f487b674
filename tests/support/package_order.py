"""The order of the package from top to bottom."""

ORDER = (
    "core", "metrics", "text", "data", "models", "losses", "hub", "predictions", "inference", "training", "finetuning",
    "tasks", "search", "report", "runs", "sklearn", "export", "serve", "cluster", "pod", "bench", "command", "__main__",
)  # fmt: skip
