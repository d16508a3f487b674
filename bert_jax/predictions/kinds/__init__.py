"""The kinds of predictions, one file each, which offers it as `KIND`."""
