"""Tables of losses for classes: which claims hold, how fast they converge, and what wrong labels cost."""

from collections.abc import Mapping
from typing import Any

from making.records import Cells
from making.result_tables import load

SETS = {"digits": "digits", "letters": "letters"}
MADE = {  # who claims that the first is better than the second
    "proxy-anchor": "Kim et al., 2020",
    "multi-similarity": "Wang et al., 2019",
    "soft-triple": "Qian et al., 2019",
    "proxy-nca-pp": "Teh et al., 2020",
    "proxy-gml": "Zhu et al., 2020",
    "proxy-nca": "Movshovitz-Attias et al., 2017",
    "n-pair": "Sohn, 2016",
    "lifted-structure": "Oh Song et al., 2016",
    "direction-proxy-nca": "Mohan et al., 2020",
    "direction-multi-similarity": "Mohan et al., 2020",
    "direction-triplet": "Mohan et al., 2020",
}
SPECTRA = {
    "log-ratio": "log-ratio",
    "dense-triplet": "dense triplets",
    "rank-n-contrast": "Rank-N-Contrast",
    "binary-triplet": "triplets by a threshold",
    "regression": "regression",
}
MEASURE = "map@r"


def claims() -> Cells:
    """Make the table of claims: the difference of MAP@R on each set, and whether it confirms the claim."""
    values = _figures()
    rows = [["claim", "made in", *(f"{title}, MAP@R" for title in SETS.values()), "confirmed"]]
    for claim in next(iter(values.values()))["claims"]:
        better, worse = (name.partition("(")[0] for name in claim.split(" > "))
        differences = [values[name]["claims"][claim][MEASURE] for name in SETS]
        rows.append(
            [f"`{better}` over `{worse}`", MADE[better], *map(difference_text, differences), judge(differences)]
        )
    return rows


def difference_text(one: Mapping[str, float]) -> str:
    """Write a difference with its interval."""
    return f"{one['mean']:+.3f} ({one['low']:+.3f} to {one['high']:+.3f})"


def judge(differences: list[Mapping[str, float]]) -> str:
    """Say whether differences on several sets confirm a claim."""
    ahead = [title for title, one in zip(SETS.values(), differences, strict=True) if one["low"] > 0]
    behind = [title for title, one in zip(SETS.values(), differences, strict=True) if one["high"] < 0]
    if ahead and behind:
        return f"on {ahead[0]}; not on {behind[0]}"
    if behind:
        return "no" if len(behind) == len(differences) else f"no, on {behind[0]}"
    if ahead:
        return "yes" if len(ahead) == len(differences) else f"on {ahead[0]}"
    return "no difference shown"


def means() -> Cells:
    """Make the table of all losses: MAP@R and Recall@1 of new classes on each set."""
    values = _figures()
    rows = [["loss", *(f"{title}, {name}" for title in SETS.values() for name in ("MAP@R", "Recall@1"))]]
    for loss in values["digits"]["means"]:
        cells = [_cell(values[name]["means"][loss][key]) for name in SETS for key in (MEASURE, "recall@1")]
        rows.append([_title(loss), *cells])
    return rows


def convergence() -> Cells:
    """Make the table of Recall@1 after some steps, and of what a step costs."""
    values, mined = _figures(), mining()
    steps = list(next(iter(values["digits"]["convergence"].values()))["steps"])
    rows = [["set", "loss", *(f"{count} steps" for count in steps), "ms a step"]]
    for name, title in SETS.items():
        curves = {_title(loss): curve for loss, curve in values[name]["convergence"].items()}
        curves[f"`{HARDEST}`"] = mined[name]["convergence"][HARDEST]
        for loss, curve in curves.items():
            cells = [f"{curve['steps'][count]['recall@1']['mean']:.3f}" for count in steps]
            rows.append([title, loss, *cells, f"{1000 * curve['seconds_a_step']:.1f}"])
    return rows


SEMI_HARD, HARDEST = "triplet(mining=semi-hard)", "triplet(mining=batch-hard)"


def mining() -> Mapping[str, Any]:
    """Read the figures of semi-hard triplets and of the hardest ones, by set."""
    found: Mapping[str, Any] = load("semi_hard").values["semi_hard"]
    return found


def wrong_classes() -> Cells:
    """Make the table of MAP@R after training with wrong classes or outliers."""
    values = _figures()
    kinds = list(next(iter(values["digits"]["spoilt"].values())))
    rows = [["set", "loss", *kinds]]
    for name, title in SETS.items():
        for loss, found in values[name]["spoilt"].items():
            rows.append([title, _title(loss), *(_cell(found[kind][MEASURE]) for kind in kinds)])
    return rows


def wrong_numbers() -> Cells:
    """Make the table of score@10 on spectra after training with swapped labels."""
    found = _figures()["spectra"]
    kinds = list(next(iter(found.values())))
    rows = [[SPECTRA[loss], *(_cell(of[kind]["score@10"]) for kind in kinds)] for loss, of in found.items()]
    return [["loss", *kinds], *rows]


def _figures() -> dict[str, Any]:
    return {name: found for file in load("class_claims").values.values() for name, found in file.items()}


def _cell(one: Mapping[str, float]) -> str:
    return f"{one['mean']:.3f} ± {(one['high'] - one['low']) / 2:.3f}"


def _title(loss: str) -> str:
    name = loss.partition("(")[0]
    return "features, untrained" if name == "untrained" else f"`{name}`"


TABLES = {
    "class_claims": claims,
    "class_losses": means,
    "class_convergence": convergence,
    "class_noise": wrong_classes,
    "label_noise": wrong_numbers,
}
"""The tables by their names on pages."""
