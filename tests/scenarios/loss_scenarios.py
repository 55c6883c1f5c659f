"""Every registered loss on every scenario that breaks numerics.

Run it by ``python tests/scenarios/loss_scenarios.py [--only NAME ...]``.

A scenario is a batch: embeddings of a type, size and form, label distances with their anchors, and classes. A
combination is good if value and gradient are finite and right, or if it is refused by one line where a scenario may
be. Right is: float32 agrees with the same loss in float64, as nearly as rounded embeddings allow; in float64 the value
is that of the formula written slowly, where there is one and the batch is small, and the gradient lies between the
slopes to both sides of a step in a random direction. Prints the bad combinations and how many there are; ends with 1 if
there is one. Not for: speed (benchmarks), nor the invariances of losses (test_every_loss.py).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import slow_losses
import torch
from torch import Tensor

from cml import losses
from cml.errors import UserError
from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.losses.loss import Loss

DIMENSION = 16
ROUNDING = 1e-7  # of float32, relative to an embedding's length
WORDS = ("black", "gull", "wren", "heron", "finch", "robin", "crow", "tern")
OPTIONS = {  # what a loss needs to be made; everything else as it comes
    "binary": "binary(loss=multi-similarity, k=1)",
    "binary-triplet": "binary-triplet(k=1)",
    "proxy-gml": "proxy-gml(per_class=2, share=0.6)",
}
VARIANTS = (
    "log-ratio(weights=uniform, label_exponent=1.0, floor_quantile=0.0, normalize=False)",
    "rank-n-contrast(temperature=0.1, normalize=True)",
    "triplet(mining=all, normalize=False)",
    "binary-triplet(rule=threshold, quantile=0.3)",
)
SLOW: dict[str, Callable[[LabelDistanceLoss, Tensor, Tensor], Tensor]] = {
    "log-ratio": lambda loss, f, y: slow_losses.log_ratio(
        f, y, None, loss.constant("label_exponent"), loss.constant("floor"), weights="rank", normalize=True
    ),
    VARIANTS[0]: lambda _, f, y: slow_losses.log_ratio(f, y),
    "pair-log-ratio": lambda loss, f, y: slow_losses.pair_log_ratio(
        f, y, loss.constant("label_exponent"), loss.constant("floor")
    ),
    "dense-triplet": lambda _, f, y: slow_losses.dense_triplet(f, y),
    "rank-n-contrast": lambda _, f, y: slow_losses.rank_n_contrast(f, y),
    "rkd-distance": lambda _, f, y: slow_losses.rkd_distance(f, y),
    "relaxed-contrastive": lambda loss, f, y: slow_losses.relaxed_contrastive(
        f, y, None, loss.constant("label_scale"), sigma=0.5
    ),
    "graded-contrastive": lambda loss, f, y: slow_losses.graded_contrastive(f, y, None, loss.constant("label_scale")),
    "generalised-contrastive": lambda loss, f, y: slow_losses.generalised_contrastive(
        f, y, None, loss.constant("label_reach")
    ),
    "soft-target": lambda loss, f, y: slow_losses.soft_target(f, y, None, 0.1 * loss.constant("label_scale")),
    "kernel-supcon": lambda loss, f, y: slow_losses.kernel_supcon(f, y, None, 0.5 * loss.constant("label_scale")),
    "cosent": lambda _, f, y: slow_losses.cosent(f, y),
    "h-ap": lambda _, f, y: slow_losses.h_ap(f, y),
    "lambda-ndcg": lambda _, f, y: slow_losses.lambda_ndcg(f, y),
}
STEPPED = ("h-ap", "lambda-ndcg")  # ranks have no gradient, so that the value jumps where two items change places


@dataclass(frozen=True)
class Scenario:
    """A batch.

    Attributes:
        name: What is special about it.
        embeddings: (B, D), of the type that the loss is given.
        label_distances: (A, B).
        classes: (B,) int64.
        autocast: Compute under bfloat16 autocast.
        plain: Nothing about the numbers is extreme: a refusal is bad.
        oracle: The slow formula takes it.
    """

    name: str
    embeddings: Tensor
    label_distances: Tensor
    classes: Tensor
    autocast: bool = False
    plain: bool = True
    oracle: bool = False


def scenarios(sizes: Sequence[int] = (2, 3, 8, 64)) -> Iterator[Scenario]:
    """All scenarios of batches of these sizes."""
    for size in sizes:
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            usual = batch(size, dtype)
            yield replace(usual, name=f"{usual.name}, all anchors")
            yield replace(usual, name=f"{usual.name}, one anchor", label_distances=usual.label_distances[:1])
    for size in (size for size in sizes if size >= 8):
        for dtype in (torch.float32, torch.float64):
            yield from odd_labels(batch(size, dtype))
            yield from odd_embeddings(batch(size, dtype))
        yield from odd_classes(batch(size, torch.float32))


def batch(size: int, dtype: torch.dtype) -> Scenario:
    generator = torch.Generator().manual_seed(size)
    labels = torch.randn(size, 3, generator=generator, dtype=torch.float64)
    number = torch.float64 if dtype == torch.float64 else torch.float32
    return Scenario(
        f"B={size} {str(dtype).removeprefix('torch.')}",
        torch.randn(size, DIMENSION, generator=generator, dtype=torch.float64).to(dtype),
        torch.cdist(labels, labels).to(number),
        torch.arange(size) % max(2, min(size // 2, len(WORDS))),
        autocast=dtype == torch.bfloat16,
        oracle=2 < size <= 8,
    )


def odd_labels(usual: Scenario) -> Iterator[Scenario]:
    """Label distances at their limits."""
    y, size = usual.label_distances, len(usual.embeddings)
    generator = torch.Generator().manual_seed(1)
    off, some = ~torch.eye(size, dtype=torch.bool), torch.rand(size, size, generator=generator) < 0.3
    some[0], some[-1] = False, True
    one = torch.full_like(y, torch.inf)
    one[0, 1] = one[1, 0] = 1.0
    outlier, outlying_pair = y.clone(), y.clone()
    outlier[:, -1] = outlier[-1] = 1e17
    outlier[-1, -1] = 0
    outlying_pair[0, 1] = outlying_pair[1, 0] = 1e17
    limits = torch.finfo(y.dtype)
    spread = 10 ** (20 * torch.rand(size, size, generator=generator, dtype=torch.float64) - 10)
    spread = torch.minimum(spread, spread.T) * off
    for name, odd, plain in (
        ("all label distances 0", torch.zeros_like(y), True),
        ("all label distances equal", off.to(y), True),
        ("nothing comparable", torch.full_like(y, torch.inf), True),
        ("one pair comparable", one, True),
        ("NaN on the diagonal", y.masked_fill(~off, torch.nan), True),
        ("-1 on the diagonal", y.masked_fill(~off, -1), True),
        ("infinity on the diagonal", y.masked_fill(~off, torch.inf), True),
        ("NaN off the diagonal", y.masked_fill(some & off, torch.nan), False),
        ("negative off the diagonal", -y, False),
        ("some infinite, one row all", y.masked_fill(some | some.T, torch.inf), True),
        ("ties", y.round(), True),
        ("two values", (y > y.median()).to(y), True),
        ("tiny", y * 1e-30, True),
        ("denormal", y * limits.tiny * 1e-3, True),
        ("huge", y * 1e30, True),
        ("the largest of float32", y / y.max() * torch.finfo(torch.float32).max, True),
        ("one item at 1e17", outlier, True),
        ("one pair at 1e17", outlying_pair, True),
        ("from 1e-10 to 1e10", spread.to(y), True),
        ("a zero among them", y.masked_fill(some & some.T & off, 0), True),
    ):
        yield replace(usual, name=f"{usual.name}, labels: {name}", label_distances=odd, plain=plain, oracle=False)


def odd_embeddings(usual: Scenario) -> Iterator[Scenario]:
    """Embeddings at their limits."""
    f, size = usual.embeddings, len(usual.embeddings)
    generator = torch.Generator().manual_seed(2)
    middle = torch.nn.functional.normalize(torch.randn(4, DIMENSION, generator=generator, dtype=torch.float64))
    cluster = torch.arange(size) % 4
    twins, zero, outlier, far = f.clone(), f.clone(), f.clone(), f.clone()
    twins[size // 2 :] = twins[: size - size // 2]
    zero[0], outlier[-1], far[-1] = 0, 1e17, 1e5
    next_to = twins.clone()
    next_to[0] = torch.nextafter(next_to[0], torch.full_like(next_to[0], torch.inf))
    line = torch.arange(size, dtype=f.dtype)[:, None] * f[0]
    for name, odd in (
        ("each twice", twins),
        ("each twice, one a bit off", next_to),
        ("all the same", f[:1].expand(size, -1).clone()),
        ("all zero", torch.zeros_like(f)),
        ("one zero", zero),
        ("on a line from 0", line),
        ("opposite", torch.cat([f[: size // 2], -f[: size - size // 2]])),
        ("far from 0", f + 1e3),
        ("one at 1e5", far),
        *((f"clusters of radius {r}", (middle[cluster] + r * f.double() / DIMENSION**0.5).to(f)) for r in (1e-2, 1e-4)),
    ):
        yield replace(usual, name=f"{usual.name}, embeddings: {name}", embeddings=odd, oracle=False)
    for scale in (1e-30, 1e-20, 1e-10, 1e-5, 1e-2, 1e2, 1e5, 1e10, 1e15, 1e18, 1e30):
        name = f"{usual.name}, embeddings: times {scale:g}"
        yield replace(usual, name=name, embeddings=f * scale, plain=1e-10 <= scale <= 1e10, oracle=False)
    yield replace(usual, name=f"{usual.name}, embeddings: one at 1e17", embeddings=outlier, plain=False, oracle=False)


def odd_classes(usual: Scenario) -> Iterator[Scenario]:
    """Classes, and the label distances 0 and 1 that they make, without a positive or a negative for some or all."""
    size = len(usual.embeddings)
    one_other, one_pair = torch.zeros(size, dtype=torch.int64), torch.arange(size)
    one_other[-1], one_pair[-1] = 1, 0
    for name, classes in (
        ("one class", torch.zeros(size, dtype=torch.int64)),
        ("classes of one item", torch.arange(size)),
        ("one item of another class", one_other),
        ("one pair of a class", one_pair),
    ):
        apart = (classes[:, None] != classes).float()
        yield replace(usual, name=f"{usual.name}, {name}", classes=classes, label_distances=apart, oracle=False)


def written() -> list[str]:
    """Every registered loss, with the settings that it must be given, and a few more."""
    return [*(OPTIONS.get(name, name) for name in losses.names()), *VARIANTS]


def fault(name: str, scenario: Scenario, vectors: Path) -> str | None:
    """What is wrong with a loss on a scenario, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of batches that teach nothing
        try:
            return _fault(name, scenario, vectors)
        except UserError as error:
            return str(error) if scenario.plain or "\n" in str(error) else None
        except Exception as error:  # a finding of its own
            return f"{type(error).__name__}: {error}"


def _fault(name: str, scenario: Scenario, vectors: Path) -> str | None:
    embeddings = scenario.embeddings
    value, gradient = result(made(name, scenario, vectors), scenario, embeddings)
    if not value.isfinite() or not gradient.isfinite().all():
        return f"value {value.item():g}, gradient {'finite' if gradient.isfinite().all() else 'not finite'}"
    exact = made(name, scenario, vectors).double()
    if embeddings.dtype != torch.float64:
        true, true_gradient = result(exact, scenario, embeddings.double())
        wrong = off(value, true, gradient, true_gradient, embeddings)
        norms = embeddings.double().norm(dim=1)
        bar = 1e-3 + ROUNDING * float(norms.max() / norms.median().clamp(min=1e-30))  # digits left beside an outlier
        if max(wrong) < bar or max(wrong) < 10 * sensitivity(exact, scenario, true, true_gradient):
            return None
        return f"off by {wrong[0]:.0e} in the value, {wrong[1]:.0e} in the gradient"
    if scenario.oracle and name in SLOW and isinstance(exact, LabelDistanceLoss):
        slow = SLOW[name](exact, embeddings, scenario.label_distances)
        if apart(value, slow.detach()) > 1e-9:
            return f"value {value.item():g}, slowly {slow.item():g}"
    return None if name in STEPPED else slope_fault(exact, scenario, value, gradient)


def sensitivity(exact: Loss, scenario: Scenario, true: Tensor, true_gradient: Tensor) -> float:
    """How far off rounding the embeddings takes a loss that is computed exactly: no float32 can do better."""
    f, generator = scenario.embeddings.double(), torch.Generator().manual_seed(6)
    found = []
    for _ in range(8):
        rounding = torch.randn(f.shape, generator=generator, dtype=f.dtype) * f.norm(dim=1, keepdim=True)
        value, gradient = result(exact, scenario, f + ROUNDING * rounding / DIMENSION**0.5)
        found.append(max(off(value, true, gradient, true_gradient, f)))
    return max(found)


def off(
    value: Tensor, true: Tensor, gradient: Tensor, true_gradient: Tensor, embeddings: Tensor
) -> tuple[float, float]:
    """Relative errors of value and gradient, the latter against a usual gradient's size where the true one is less."""
    of_gradient = float((gradient.double() - true_gradient.double()).norm())
    if embeddings.dtype == torch.bfloat16:
        of_gradient = max(0.0, of_gradient - 4e-3 * float(true_gradient.norm()))  # the leaf's own rounding
    usual = 1e-3 * max(1.0, abs(float(true))) / float(embeddings.double().norm(dim=1).max().clamp(min=1e-30))
    return apart(value, true), of_gradient / max(float(true_gradient.norm()), usual)


def slope_fault(loss: Loss, scenario: Scenario, value: Tensor, gradient: Tensor) -> str | None:
    """Compare the gradient with the loss a little to both sides."""
    f = scenario.embeddings
    direction = torch.randn(f.shape, generator=torch.Generator().manual_seed(3), dtype=f.dtype)
    around = (f - f.mean(dim=0)).norm(dim=1, keepdim=True)
    direction *= torch.minimum(f.norm(dim=1, keepdim=True), around)  # one of 0 has no slope where it is normalised

    claimed = (gradient * direction).sum()
    slack = 1e-3 * ((gradient * direction).norm() + value.abs().clamp(min=1))  # a value has 9 digits or more
    steepest = []
    for step in (1e-5, 1e-6, 1e-7):
        left, right = ((result(loss, scenario, f + s * direction)[0] - value) / s for s in (-step, step))
        if min(left, right) - slack <= claimed <= max(left, right) + slack:
            return None
        steepest.append(max(abs(left), abs(right)))
    if steepest[2] > 2 * steepest[0]:  # a loss that jumps, as mining does at a tie, has no slope there
        return None
    return f"slope {claimed:g}, to both sides {left:g} and {right:g}"


def apart(found: Tensor, true: Tensor) -> float:
    """Relative difference of two values, from the truth or from 1e-4 if that is more."""
    return float((found.double() - true.double()).abs() / true.double().abs().clamp(min=1e-4))


def made(name: str, scenario: Scenario, vectors: Path) -> Loss:
    """The loss, with the constants of the scenario's label distances where it has usable ones, or of usual ones."""
    loss: Loss = losses.get(name, **({"vectors": str(vectors)} if name == "language-guidance" else {}))
    if isinstance(loss, LabelDistanceLoss):
        y = scenario.label_distances.double()
        sample = y[(y >= 0) & ~torch.eye(*y.shape, dtype=torch.bool)]
        try:
            loss.fit(sample)
        except UserError:
            loss.fit(torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64))
    elif loss.labels == "vectors":
        loss.prepare(label_vectors(scenario), dimension=DIMENSION)
    elif loss.labels == "classes":
        count = max(2, int(scenario.classes.max()) + 1)
        names = [f"{WORDS[k % len(WORDS)]} {WORDS[k // len(WORDS) % len(WORDS)]}" for k in range(count)]
        loss.prepare(torch.arange(count), dimension=DIMENSION, names=names)
    return loss


def label_vectors(scenario: Scenario) -> Tensor:
    kind = torch.float64 if scenario.embeddings.dtype == torch.float64 else torch.float32
    generator = torch.Generator().manual_seed(4)
    return torch.randn(len(scenario.embeddings), DIMENSION, generator=generator, dtype=torch.float64).to(kind)


def triplets(scenario: Scenario) -> Tensor:
    """Triplets of every item as an anchor, with the two that follow it in the batch."""
    rows = torch.arange(len(scenario.embeddings))
    return torch.stack([rows, rows.roll(-1), rows.roll(-2), torch.ones_like(rows)], dim=1)


def result(loss: Loss, scenario: Scenario, embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """Value and gradient."""
    targets = {
        "label distances": scenario.label_distances,
        "vectors": label_vectors(scenario),
        "triplets": triplets(scenario),
    }
    leaf = embeddings.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=scenario.autocast):
        value = loss(leaf, targets.get(loss.labels, scenario.classes))
    (gradient,) = torch.autograd.grad(value, leaf, allow_unused=True)
    return value.detach(), torch.zeros_like(leaf) if gradient is None else gradient


def findings(names: Sequence[str], sizes: Sequence[int], every: int = 1) -> tuple[int, list[tuple[str, str, str]]]:
    """How many combinations there are, one in ``every``, and the bad ones: loss, scenario, what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        vectors = Path(folder) / "words.txt"
        numbers = torch.randn(len(WORDS), 5, generator=torch.Generator().manual_seed(5)).tolist()
        vectors.write_text("".join(f"{w} {' '.join(map(str, row))}\n" for w, row in zip(WORDS, numbers, strict=True)))
        pairs = [(name, scenario) for name in names for scenario in scenarios(sizes)][::every]
        found = [(name, scenario.name, fault(name, scenario, vectors)) for name, scenario in pairs]
    return len(pairs), [(name, scenario, wrong) for name, scenario, wrong in found if wrong is not None]


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", nargs="+", metavar="LOSS", help="these losses alone, written as for --loss")
    chosen = options.parse_args(arguments)
    torch.set_num_threads(1)
    count, bad = findings(chosen.only or written(), (2, 3, 8, 64))
    for line in bad:
        print(" | ".join(line))
    print(f"{len(bad)} of {count:,} combinations of a loss and a scenario are bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
