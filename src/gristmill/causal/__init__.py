"""Datasets in, datasets out: `CausalLMTokenizer` for the datasets of Hugging Face."""
