"""The table of all claims: what a paper says, what the records show of it, and the command that measures it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cml.retrieval.comparison import Interval, interval_text, over_seeds
from making import class_tables, papers_tables
from making.papers_tables import are_apart, half, mean
from making.records import RECORDS, Cells
from making.result_tables import load

BEYOND_BINARY = "Beyond Binary Supervision, 2019"
PROXY_ANCHOR = class_tables.MADE["proxy-anchor"]
INCONCLUSIVE = "inconclusive"
NO = "does not hold"
YES = "holds"


class Claim(NamedTuple):
    """A row of the table; ``command`` comes with a link to the page that has the figures and the whole command."""

    claim: str
    made_in: str
    data: str
    measured: str
    verdict: str
    command: str


def claims() -> Cells:
    """Make the table of claims: header and rows."""
    rows = [*_beyond_binary(), *_dense(), *_proxy_anchor(), *_class_losses(), *_maps(), *_self_supervision()]
    return [["claim", "made in", "data", "measured", "verdict", "how to reproduce"], *(list(row) for row in rows)]


def _beyond_binary() -> list[Claim]:
    default = papers_tables.default_loss()[1:]
    ahead = [row for row in default if row[-1] == "yes"]
    published = papers_tables.published_loss()[1:]
    behind = [row for row in published if row[-1].startswith("no")]
    tuned = papers_tables.equal_tuning()[1:]
    ahead_tuned, behind_tuned = ([row for row in tuned if row[-1].startswith(start)] for start in ("yes", "no:"))
    leads = papers_tables.leads_by_dimension()
    sizes = [int(size) for size in leads[0][2:]]
    low = [row for row in leads[1:] if sizes[_position_of_largest(row[2:])] <= LOW]
    captions = papers_tables.captioners()[1:]
    better = [row for row in captions if row[-1] in ("yes", "after cross-entropy")]
    return [
        Claim(
            "log-ratio is ahead of triplets by a threshold",
            BEYOND_BINARY,
            f"{len(default)} sets, cml's log-ratio",
            f"ahead on {len(ahead)}; on the others, intervals overlap",
            f"{YES} on {len(ahead)} of {len(default)}",
            "`cml compare`: [papers](papers.md)",
        ),
        Claim(
            "log-ratio is ahead of triplets, with equal trials",
            BEYOND_BINARY,
            f"{len(tuned)} sets of the benchmark, cml's log-ratio",
            f"ahead of both triplet losses on {len(ahead_tuned)}, behind one of them on {len(behind_tuned)}",
            f"{NO} on {len(behind_tuned)} of {len(tuned)}",
            "`cml bench`: [papers](papers.md)",
        ),
        Claim(
            "the published loss is ahead of triplets",
            BEYOND_BINARY,
            f"{len(published)} sets, heads on frozen features",
            f"behind dense triplets on {len(behind)}, ahead on none",
            f"{NO} on {len(behind)} of {len(published)}",
            "`cml compare`: [papers](papers.md)",
        ),
        Claim(
            "the lead is largest at low dimensions",
            BEYOND_BINARY,
            "drawn people, rooms and scenes, two triplet losses",
            f"largest at {LOW} dimensions or fewer in {len(low)} of {len(leads) - 1} comparisons",
            f"{YES} in {len(low)} of {len(leads) - 1}",
            "`cml compare --dimensions`: [papers](papers.md)",
        ),
        Claim(
            "caption-trained features help a captioner",
            BEYOND_BINARY,
            "drawn scenes, COCO photographs",
            f"CIDEr-D after cross-entropy is higher in {len(better)} of {len(captions)}",
            f"{YES} on drawn scenes" if better else INCONCLUSIVE,
            "`cml compare captioning`: [captioning](captioning.md)",
        ),
    ]


LOW = 16  # dimensions


def _position_of_largest(cells: Sequence[str]) -> int:
    """The place of the largest mean, the first of equal ones."""
    means = [mean(cell) for cell in cells]
    return means.index(max(means))


DENSE_CLAIMS = {  # of the script's record, by what the paper claims
    "dense lists > naive lists": "dense lists are ahead of naive lists",
    "all pairs > dense lists": "learning from all triplets of a batch improves (all anchors, over dense lists)",
}
DENSE_LOSSES = {"log-ratio": "log-ratio", "log-ratio-paper": "the published loss", "dense-triplet": "dense triplets"}
SET_NAMES = {
    "people": "drawn people",
    "rooms": "drawn rooms",
    "scenes": "drawn scenes",
    "tablets": "spectra",
    "waves": "drawn waves",
    "diabetes": "patients",
    "elpv": "solar cells",
    "steering": "steering",
}


def dense() -> Cells:
    """Make the table of dense lists, naive lists and all pairs: scores and paired differences."""
    header = ["set", "loss", "naive lists", "dense lists", "all pairs", "dense - naive", "all - dense"]
    rows = []
    for name, found in load("dense_claims").values["dense_claims"].items():
        for loss in (loss for loss in found if loss != "frozen"):
            scores, differences = found[loss]["scores"], found[loss]["claims"]
            cells = [_score(scores[way]) for way in ("naive lists", "dense lists", "all pairs")]
            cells += [_difference(differences[claim]) for claim in DENSE_CLAIMS]
            rows.append([SET_NAMES.get(name, name), DENSE_LOSSES.get(loss, loss), *cells])
    return [header, *rows]


def _dense() -> list[Claim]:
    if not (RECORDS / "dense_claims.json").exists():
        return []
    by_set = load("dense_claims").values["dense_claims"]
    rows = []
    for claim, text in DENSE_CLAIMS.items():
        found = [of[loss]["claims"][claim] for of in by_set.values() for loss in of if loss != "frozen"]
        ahead, behind = sum(one["low"] > 0 for one in found), sum(one["high"] < 0 for one in found)
        data = f"{len(found)} comparisons on {', '.join(SET_NAMES.get(name, name) for name in by_set)}"
        measured = f"ahead in {ahead}, behind in {behind}"
        verdict = INCONCLUSIVE
        if ahead or behind:
            verdict = f"{YES} in {ahead} of {len(found)}" if ahead > behind else f"{NO} in {behind} of {len(found)}"
        rows.append(Claim(text, BEYOND_BINARY, data, measured, verdict, "`dense_claims.py`: [papers](papers.md)"))
    return rows


def _proxy_anchor() -> list[Claim]:
    class_claims = _class_figures()
    rows = [
        Claim(
            "state of the art on four sets",
            PROXY_ANCHOR,
            "CUB, Cars, SOP, In-Shop",
            "not run: the data are not part of any package",
            INCONCLUSIVE,
            "`cml reproduce proxy-anchor cub`: [reproduce](../howto/reproduce.md)",
        )
    ]
    for name in class_tables.SETS:
        curves = class_claims[name]["convergence"]
        at = {loss: curve["steps"][STEPS]["recall@1"] for loss, curve in curves.items()}
        ours = at.pop("proxy-anchor")
        best = max(at, key=lambda loss: at[loss]["mean"])
        rows.append(
            Claim(
                "Proxy-Anchor converges fastest",
                PROXY_ANCHOR,
                class_tables.SETS[name],
                f"Recall@1 after {STEPS} steps: {_score(ours)}; {_short(best)}: {_score(at[best])}",
                _judge(ours, at[best]),
                "`class_claims.py`: [classes](classes.md)",
            )
        )
    rows += [_robust(class_claims, name, kind) for name in class_tables.SETS for kind in ("30% wrong", "30% outliers")]
    return [*rows, *_settings()]


STEPS = "20"


def _robust(values: Mapping[str, Any], name: str, kind: str) -> Claim:
    """MAP@R of Proxy-Anchor after wrong classes or outliers, beside that of the best pair loss."""
    at = {loss: of[kind]["map@r"] for loss, of in values[name]["spoilt"].items()}
    pairs = {loss: one for loss, one in at.items() if loss.partition("(")[0] in PAIR_LOSSES}
    best, ours = max(pairs, key=lambda loss: pairs[loss]["mean"]), at["proxy-anchor"]
    share = kind.replace("%", " %")
    return Claim(
        "proxies are robust to wrong classes and outliers",
        PROXY_ANCHOR,
        f"{class_tables.SETS[name]}, {share}",
        f"MAP@R {_score(ours)}; {_short(best)}: {_score(pairs[best])}",
        _judge(ours, pairs[best]),
        "`class_claims.py`: [classes](classes.md)",
    )


PAIR_LOSSES = ("multi-similarity", "triplet", "n-pair")


def _judge(ours: Mapping[str, float], best_other: Mapping[str, float]) -> str:
    """Say whether a figure is ahead of the best of the others, by intervals that do not overlap."""
    if ours["low"] > best_other["high"]:
        return YES
    return NO if best_other["low"] > ours["high"] else INCONCLUSIVE


STABLE = 0.1  # of Recall@1: the range that all intervals lie in where a figure is stable
STUDIES = {  # option to what the paper says, and the values among which it says so
    "batch size": ("larger batches are better", ("30", "180")),
    "dimension": ("stable from 128 dimensions on", ("128", "256", "512")),
    "alpha": ("stable from alpha 16 on", ("16", "32", "64")),
}


def _settings() -> list[Claim]:
    rows = []
    for record, data in (("proxy_anchor", "digits 5 to 9, new classes"), ("proxy_anchor_things", "drawn things")):
        table = {(row[0], row[1]): row[2] for row in load(record).table[1:]}
        for option, (claim, values) in STUDIES.items():
            cells = [table[option, value] for value in values]
            differ = any(are_apart(one, other) for one in cells for other in cells)
            if claim.startswith("stable"):
                ends = [mean(cell) + side * half(cell) for cell in cells for side in (-1, 1)]
                is_narrow = max(ends) - min(ends) <= STABLE
                verdict = NO if differ else YES if is_narrow else INCONCLUSIVE
            else:
                verdict = (YES if mean(cells[-1]) > mean(cells[0]) else NO) if differ else INCONCLUSIVE
            figures = ", ".join(f"{cell.rstrip('*')} at {value}" for cell, value in zip(cells, values, strict=True))
            command = "`cml compare classes`: [settings](proxy_anchor.md)"
            rows.append(Claim(claim, PROXY_ANCHOR, data, f"Recall@1 {figures}", verdict, command))
    return rows


VERDICTS = {"yes": YES, "no": NO, "no difference shown": INCONCLUSIVE}


def _class_losses() -> list[Claim]:
    rows = []
    for claim, made_in, digits, letters, confirmed in class_tables.claims()[1:]:
        measured, command = f"MAP@R {digits}; {letters}", "`class_claims.py`: [classes](classes.md)"
        rows.append(Claim(claim, made_in, "digits; letters", measured, _as_verdict(confirmed), command))
    return rows


def _as_verdict(confirmed: str) -> str:
    """The verdict of what a table of differences says of a claim."""
    return VERDICTS.get(confirmed) or (f"{NO} {confirmed[4:]}" if confirmed.startswith("no") else f"{YES} {confirmed}")


def _maps() -> list[Claim]:
    figures = load("drlim").values["drlim"]["figures"]
    learned, others = figures["learned mapping"]["shift"], ("locally linear embedding", "principal components")
    holds = all(learned[2] < figures[other]["shift"][1] for other in others)
    beside = [f"{other} {interval_text(tuple(figures[other]['shift']))}" for other in others]
    return [
        Claim(
            "a learned map ignores shifts that its graph links",
            "DrLIM, 2006",
            "digits 4 and 9, shifted",
            f"dependence on the shift {'; '.join([interval_text(tuple(learned)), *beside])}",
            YES if holds else NO,
            "`cml reproduce drlim digits`: [shifted digits](drlim.md)",
        ),
        *_mining(),
    ]


def _mining() -> list[Claim]:
    values, made_in, command = class_tables.mining(), "FaceNet, 2015", "`class_claims.py`: [classes](classes.md)"
    claim = f"{class_tables.SEMI_HARD} > {class_tables.HARDEST}"
    differences = [values[name]["claims"][claim][class_tables.MEASURE] for name in class_tables.SETS]
    measured = f"MAP@R {'; '.join(map(class_tables.difference_text, differences))}"
    verdict, data = _as_verdict(class_tables.judge(differences)), "; ".join(class_tables.SETS.values())
    rows = [Claim("semi-hard triplets train better than the hardest", made_in, data, measured, verdict, command)]
    for name, title in class_tables.SETS.items():
        curves = values[name]["convergence"]
        semi_hard, hardest = (
            curves[loss]["steps"][STEPS]["recall@1"] for loss in (class_tables.SEMI_HARD, class_tables.HARDEST)
        )
        measured = f"Recall@1 after {STEPS} steps: {_score(semi_hard)}; hardest: {_score(hardest)}"
        verdict = _judge(semi_hard, hardest)
        rows.append(
            Claim("semi-hard triplets converge faster than the hardest", made_in, title, measured, verdict, command)
        )
    return rows


def _self_supervision() -> list[Claim]:
    by_row = load("self_supervision").values["self_supervision"]["rows"]
    learned = [row for row in by_row if row.startswith("self-supervised")][-1]
    counts = list(by_row[learned])
    rows = []
    for claim, other, count in (
        ("self-supervision learns features without labels", "untrained", counts[1]),
        ("self-supervision learns features without labels", "untrained", counts[-1]),
        ("with few labels, self-supervised features are ahead", "supervised", counts[1]),
        ("with many labels, supervised features are ahead", "supervised", counts[-1]),
    ):
        sides = (learned, other) if "self-supervis" in claim else (other, learned)
        difference = over_seeds(np.subtract(*(by_row[side][count]["probe"] for side in sides)))
        measured = f"probe's accuracy {interval_text(difference)} over {sides[1].partition(',')[0]}"
        verdict = _judge_difference(difference)
        command = "`self_supervision.py`: [self-supervision](self_supervision.md)"
        rows.append(Claim(claim, "survey", f"digits, {count} labels a class", measured, verdict, command))
    return rows


def _judge_difference(difference: Interval) -> str:
    """Say whether an interval lies above 0."""
    _, low, high = difference
    return YES if low > 0 else NO if high < 0 else INCONCLUSIVE


def _class_figures() -> Mapping[str, Any]:
    return load("class_claims").values["class_claims"]


def _short(loss: str) -> str:
    return f"`{loss.partition('(')[0]}`"


def _score(one: Mapping[str, float]) -> str:
    return f"{one['mean']:.3f} ± {(one['high'] - one['low']) / 2:.3f}"


def _difference(one: Mapping[str, float]) -> str:
    mark = "*" if one["low"] > 0 or one["high"] < 0 else ""
    return f"{one['mean']:+.3f} ± {(one['high'] - one['low']) / 2:.3f}{mark}"


TABLES = {"claims": claims, "dense_claims": dense}
"""The tables by their names on pages."""
