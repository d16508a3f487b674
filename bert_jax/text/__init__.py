"""Text: tokenizers, vocabulary training and corpus readers."""
