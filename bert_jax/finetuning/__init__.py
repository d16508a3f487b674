"""What the tasks that learn from labels share: configs, splits of examples, a head's beginning, methods."""
