"""Amounts of bytes as readable text."""


def format_bytes(size: float) -> str:
    """Format a number of bytes with three digits and a decimal unit.

    Args:
        size: A number of bytes, at least 0.

    Returns:
        The text, such as ``1.3 GB``.

    Example:
        >>> format_bytes(1_300_000_000)
        '1.3 GB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.0f} TB" if size >= 1000 else f"{size:.3g} TB"
