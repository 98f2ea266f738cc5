"""Amounts in words: counts, sizes, times."""


def count(number: int) -> str:
    """Return a number with its thousands apart."""
    return f"{number:,}"


def of(number: int, noun: str) -> str:
    """Return a number and its noun: `1 block`, `2 blocks`."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def size(nbytes: int) -> str:
    """Return bytes in the largest unit that leaves at least 1: `312 KiB`, `1.4 GiB`."""
    value, unit = float(nbytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.1f} {unit}"


def seconds(value: float | None) -> str:
    """Return seconds with three digits that mean something; a dash where none are known."""
    if value is None:
        return "-"
    if value < 0.0005:
        return "0 s" if value < 0.00005 else f"{value * 1000:.1f} ms"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 100 else f"{value:.0f} s"


def share(part: float, whole: float) -> str:
    """Return a part in per cent; never 100 % for less than all, nor 0 % for more than nothing."""
    if not whole:
        return "0 %"
    percent = 100 * part / whole
    if part < whole:
        percent = min(percent, 99.9 if percent > 99 else 99)
    return f"{percent:.1f} %" if percent > 99 and part < whole else f"{max(percent, 1 if part else 0):.0f} %"
