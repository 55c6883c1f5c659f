"""``cml check DATASET``: everything that is wrong with a prepared dataset, pixels included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cml import tasks
from cml.command_line.parse_options import parse
from cml.command_line.shared_options import Dataset, show
from cml.console.progress_bar import BAR_DELAY, ProgressBar
from cml.errors import DataError, shorten_message
from cml.plausibility.finding import Finding, Rule


@dataclass(frozen=True)
class Check:
    """Check a prepared dataset for problems."""

    data: Dataset
    skip: tuple[Rule, ...] = ()
    """Rules on suspicious data to skip: constant-labels, sentinels, outliers, radians, circular, swapped-places,
    frame, thousands, repeated-labels, lone-queries, tiny-people, stray-ids, depth, same-images,
    near-duplicates, near-in-order, feature-duplicates, unknown-words."""
    features: Path | None = None
    """Feature store (cml features) of the items. With it, the check also finds test items that are variants of training
    items, such as crops or mirror images."""
    json: bool = False
    """Print the problems and findings as JSON."""


def run(arguments: Sequence[str]) -> None:
    """Print every problem, one per line; exit code 2 if there is one. Suspicious data is said, but is no problem."""
    options = parse(Check, arguments, prog="cml check")
    from cml.data.check_dataset import check_dataset, describe_constant_columns
    from cml.data.prepared import PreparedDataset
    from cml.plausibility.image_rules import Thumbnails

    features = None
    if options.features is not None:
        from cml.feature_store.store import FeatureStore

        features = FeatureStore.open(options.features)
    with ProgressBar(desc="check", unit="image", leave=False, delay=BAR_DELAY) as bar:
        thumbnails = Thumbnails()
        problems = check_dataset(options.data, tasks=tasks.names(), progress=bar.update, look=thumbnails.add)
    ties = verdict = constant = known = ""
    findings: list[Finding] = []
    if not problems:
        from cml.checks.dataset_findings import find_suspicious  # which imports torch
        from cml.checks.query_count import judge_test_size

        dataset = PreparedDataset.open(options.data)
        # also where labels are refused, for it may say why
        findings = find_suspicious(dataset, thumbnails, features=features, skip=options.skip)
        from cml.approximate.dataset_distances import describe_ties, find_label_faults

        problems = find_label_faults(options.data)
    if not problems:
        constant = describe_constant_columns(dataset)
        if dataset.info.queries_are_known:
            known = (
                "The split is by judgements: queries are training items again, with other judgements, and so are not "
                "reported as duplicates."
            )
        rules = {finding.rule for finding in findings}
        ties = "" if "constant-labels" in rules else describe_ties(options.data)
        verdict = judge_test_size(dataset, is_measurable="lone-queries" not in rules)
    problems = list(map(shorten_message, problems))
    suspicious = [shorten_message(f"Suspicious: {finding}") for finding in findings]
    result = {
        "folder": str(options.data),
        "problems": problems,
        "findings": [asdict(finding) for finding in findings],
        "ties": ties,
        "verdict": verdict,
        "constant": constant,
        "known_queries": known,
    }
    sound = f"{options.data}: {'no errors, but look at this' if findings else 'nothing wrong'}"
    lines = [*(problems or [sound]), *suspicious, *filter(None, (constant, ties, known, verdict))]
    show(result, *lines, as_json=options.json)
    if problems:
        raise DataError(f"{options.data} has {len(problems)} problem{'s' if len(problems) > 1 else ''}, listed above.")
