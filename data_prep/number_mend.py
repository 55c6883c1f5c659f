"""The mend that fits the cause, for a cell of a table that should hold a number and does not."""

import math
import re
from datetime import date, datetime

_MISSING = frozenset({"nan", "na", "n/a", "null", "none", "nil", "-", "--", "?", "missing", "unknown"})
_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+")
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")
_POINT_GROUPS = re.compile(r"[+-]?\d{1,3}(\.\d{3}){2,}|[+-]?\d{1,3}(\.\d{3})+,\d+")
_PERCENT = re.compile(r"[+-]?[\d.,]+\s*%")
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?")
_OTHER_GROUPS = re.compile(r"[+-]?\d{1,3}([ '])\d{3}(\1\d{3})*(\.\d+)?")
_ID = re.compile(r"(?=.*[^\W\d_])(?=.*\d)[\w-]+")
_WITH_UNIT = re.compile(r"([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([^\W\d_°]+[²³]?|°[CF]?|[$€£])")


def suggest_mend(value: object, *, own: bool = True) -> str:
    """Say how a cell could become a number."""
    text = value.strip() if isinstance(value, str) else ""
    if value is None or (isinstance(value, str) and not text):
        return "the cell is empty: fill it, or delete the line"
    if text.lower().lstrip("+-") in ("inf", "infinity") or value in (math.inf, -math.inf):
        return "an infinite number has no distance: correct it, or delete the line"
    if isinstance(value, float) or text.lower() in _MISSING:
        return "the number is missing: fill it, or delete the line"
    if isinstance(value, bool) or text.lower() in ("true", "false"):
        return "for yes and no take --kind classes" if own else "write 0 or 1"
    if isinstance(value, date | datetime) or _DATE.fullmatch(text):
        return "a date or time is no number: convert it, for example to days or hours since a fixed one"
    if _PERCENT.fullmatch(text):
        return "write the number without the percent sign" + (', and give the unit by --unit "%"' if own else "")
    if _GROUPED.fullmatch(text):
        whole, decimal = text.replace(",", ""), text.replace(",", ".", 1)
        if text.count(",") > 1:
            return f"for {whole} give --thousands ," if own else f"write {whole}"
        if own:
            return f"it may be {whole} or {decimal}: say which by --thousands , or --decimal ,"
        return f"write {whole} or {decimal}, whichever it means"
    if _DECIMAL_COMMA.fullmatch(text):
        return "for a decimal comma give --decimal ," if own else "write a point for the decimal comma"
    if _POINT_GROUPS.fullmatch(text):
        return "for points between thousands give --decimal , --thousands ." if own else "leave the separators out"
    if (parts := _WITH_UNIT.fullmatch(text)) is not None:
        unit = f', and give the unit by --unit "{parts[2]}"' if own else ""
        return f"write the number alone, {parts[1]}{unit}"
    if own and (match := _OTHER_GROUPS.fullmatch(text)) is not None:
        return f'for such a mark between thousands give --thousands "{match[1]}"'
    if own and _ID.fullmatch(text):
        return "an id is no number: name another column by --label-columns, or take --kind classes"
    return "for texts take --kind captions or --kind classes" if own else "mend it"
