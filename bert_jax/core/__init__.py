"""What the whole package stands on: errors, configs, safe output, hashes, checked JSON, memory, and printed lines."""
