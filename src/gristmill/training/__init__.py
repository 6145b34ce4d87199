"""Text -> a tokenizer: pieces are counted (counting, inventory), then pairs are merged (start, merging)."""
