"""Numbers and text as people read them."""

from __future__ import annotations


def of_bytes(number: float) -> str:
    """Bytes, in powers of 1000."""
    return _scaled(number, ("B", "kB", "MB", "GB", "TB", "PB"), gap=" ")


def of_count(number: float) -> str:
    """A count: exact while it is short."""
    return f"{number:,.0f}" if number < 1e6 else _scaled(number, ("", "K", "M", "G", "T", "P"), gap="")


def plural(number: int, what: str) -> str:
    """So many of something: 1 unit, 2 units."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """A time span."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def printable(text: str) -> str:
    """Text without control characters: a corpus may hold anything, and a terminal obeys them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _scaled(number: float, units: tuple[str, ...], *, gap: str) -> str:
    for unit in units:
        if abs(number) < 999.5 or unit == units[-1]:
            return f"{number:.3g}{gap}{unit}" if unit != units[0] else f"{number:.0f}{gap}{unit}"
        number /= 1000
    raise AssertionError
