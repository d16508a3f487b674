"""The order of the package from top to bottom."""

ORDER = (
    "core", "metrics", "text", "data", "models", "losses", "hub", "predictions", "inference", "training", "tasks",
    "search", "report", "pod", "runs", "bench", "command", "__main__",
)  # fmt: skip
