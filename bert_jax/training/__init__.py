"""Training: one step, one loop, any mesh. Nothing here knows a task by name."""
