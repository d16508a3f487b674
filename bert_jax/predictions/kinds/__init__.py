"""The kinds of predictions. Each file holds one and names it `KIND`."""
