"""Datasets of the Hugging Face hub: a name becomes a commit and its files, and a file becomes a copy here.

Everything is pinned: a file is `hf://datasets/owner/name@commit/path`, with the size and the digest that the
hub lists, whether it is read from the cache or from the hub. `names` knows what people call datasets and
imports next to nothing; the rest is imported where a dataset is read.
"""
