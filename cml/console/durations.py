"""Estimated durations as readable text."""


def format_duration(seconds: float) -> str:
    """Format an estimated duration with the precision that an estimate has.

    Args:
        seconds: The duration in seconds, at least 0.

    Returns:
        The text: ``under a second``, ``about 4 s``, ``about 12 min`` or ``about 3.5 h``.

    Example:
        >>> format_duration(720)
        'about 12 min'
    """
    if seconds < 1:
        return "under a second"
    if seconds < 100:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 6000 else f"about {seconds / 3600:.1f} h"
