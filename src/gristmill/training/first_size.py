"""How large a table of pieces is at first."""

BYTES_A_PIECE = 128
"""Of 100 MB of mixed text, for each distinct piece; more text has fewer new ones."""
MAX_EXPECTED = 1 << 20


def expected_pieces(text_bytes: int) -> int:
    """Distinct pieces to set memory aside for at once, where about so much will be counted."""
    return min(text_bytes // BYTES_A_PIECE, MAX_EXPECTED)
