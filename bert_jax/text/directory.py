"""Opens whichever tokenizer a model directory carries."""
