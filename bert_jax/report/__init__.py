"""Pictures and tables of a finished run."""
