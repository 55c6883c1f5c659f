"""Sizes and times as readable text."""


def size_text(size: float) -> str:
    """A number of bytes as text: 1.3 GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.0f} TB" if size >= 1000 else f"{size:.3g} TB"


def time_text(seconds: float) -> str:
    """An estimated time as text: under a second, about 4 s, 12 min, 3.5 h."""
    if seconds < 1:
        return "under a second"
    if seconds < 100:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 6000 else f"about {seconds / 3600:.1f} h"
