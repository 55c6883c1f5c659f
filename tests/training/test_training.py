from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import spearmanr

import cml
from cml import distances, sampling
from cml.array_types import Float32
from cml.data.images import Images
from cml.data.vectors import Vectors
from cml.distances import LabelDistance, Labels
from cml.errors import DataError, UserError
from cml.items import LabelledItems
from cml.models.embedding import EmbeddingModel
from cml.option_types import check_options
from cml.processes.device import pick_device
from cml.processes.ranks import Ranks
from cml.storage.saved_options import saved_options
from cml.training.batches import BatchSource
from cml.training.checkpoint import Checkpoint
from cml.training.config import TrainConfig
from cml.training.gradient_descent import GradientDescent, reduce_batch_size
from cml.training.learner import Learned, Place
from cml.training.metrics_log import read_metrics
from cml.training.optimizer import learning_rate_factor
from cml.training.saved_model import RunConfig
from cml.training.stages import HoldOut
from cml.training.training_targets import BatchTargets, TrainingTargets
from cml.training.validation import held_out_score, label_order

CONFIG = TrainConfig(
    backbone="small-cnn",
    weights="none",
    image_size=(16, 16),
    dimension=8,
    sampler="grouped(batch_size=16, groups=3, drawn=2, pool=4)",
    steps=12,
    checkpoint_every=4,
    workers=0,
)


def bars(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of a bright bar, labelled with its place."""
    places = np.random.default_rng(0).uniform(2, 14, count)
    columns = np.arange(16)
    images = 255 * np.exp(-((columns[None, :] - places[:, None]) ** 2) / 4)
    return np.tile(images[:, None, :, None], (1, 16, 1, 3)).astype(np.uint8), places


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model.safetensors")


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_embedding_distances_mirror_label_distances() -> None:
    images, places = bars(120)
    model = cml.fit(images[:80], places[:80], replace(CONFIG, steps=120), quiet=True)
    embeddings = model.embed(images[80:])
    from scipy.stats import spearmanr

    upper = np.triu_indices(40, 1)
    found = np.linalg.norm(embeddings[:, None] - embeddings[None], axis=2)[upper]
    wanted = np.abs(places[80:, None] - places[None, 80:])[upper]
    assert spearmanr(found, wanted).statistic > 0.8


def test_same_seed_same_weights_and_another_seed_others() -> None:
    images, places = bars()
    first, again, other = (
        cml.fit(images, places, replace(CONFIG, seed=seed, steps=4), quiet=True).network.state_dict()
        for seed in (0, 0, 1)
    )
    assert same(first, again)
    assert not same(first, other)


def test_workers_change_nothing() -> None:
    images, places = bars()
    config = replace(CONFIG, steps=4, scale_jitter=0.1, flip="list", brightness_jitter=0.2)
    alone = cml.fit(images, places, config, quiet=True).network.state_dict()
    helped = cml.fit(images, places, replace(config, workers=2), quiet=True).network.state_dict()
    assert same(alone, helped)


SCRIPT = """
import sys, time
from pathlib import Path
from tests_training_config import bars, CONFIG
import cml
from cml.training import metrics_log
really, times = metrics_log.MetricsLog.add, []
def add(self, records):
    really(self, records)
    times.append(1)
    if len(times) == 2:  # the first checkpoint is written
        time.sleep(600)
metrics_log.MetricsLog.add = add
images, places = bars()
cml.fit(images, places, CONFIG, out=Path(sys.argv[1]), resume=True, quiet=True)
"""


@pytest.mark.slow
def test_killed_and_resumed_is_bit_for_bit_the_uninterrupted_run(tmp_path: Path) -> None:
    images, places = bars()
    # dropout-free networks would not notice lost random numbers: the jitter and flips come from the step alone,
    # the efficientnet's drop-connect below covers torch's own generator
    cml.fit(images, places, CONFIG, out=tmp_path / "whole", quiet=True)

    (tmp_path / "tests_training_config.py").write_text(
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom test_training import bars, CONFIG\n"
    )
    (tmp_path / "run.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, str(tmp_path / "run.py"), str(tmp_path / "cut")]
    process = subprocess.Popen(command, env=environment)
    deadline = time.monotonic() + 120
    while not (tmp_path / "cut" / "checkpoints" / "last.pt").exists():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "cut" / "model.safetensors").exists()
    with pytest.raises(DataError, match="not finished"):
        cml.load(tmp_path / "cut")

    cml.fit(images, places, CONFIG, out=tmp_path / "cut", resume=True, quiet=True)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "cut"))
    assert read_metrics(tmp_path / "whole" / "metrics.jsonl") == read_metrics(tmp_path / "cut" / "metrics.jsonl")


def test_resume_restores_torchs_random_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch import nn

    from cml import models

    def noisy() -> nn.Module:
        return nn.Sequential(models.get("small-cnn", "none").module, nn.Dropout(0.5))

    monkeypatch.setitem(models.registry._entries, "noisy", noisy)
    images, places = bars()
    config = replace(CONFIG, backbone="noisy")
    whole = cml.fit(images, places, config, quiet=True).network.state_dict()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("cml.training.metrics_log.LOG_EVERY", 7)  # after the checkpoint at step 4
        patch.setattr("cml.training.metrics_log._check_finite", lambda first, values: None if first < 4 else stop())
        patch.setattr("cml.training.metrics_log.MetricsLog.add", lambda self, records: None)
        with pytest.raises(KeyboardInterrupt):
            cml.fit(images, places, config, out=tmp_path / "cut", quiet=True)
    torch.rand(3)  # somebody else's random numbers in between
    resumed = cml.fit(images, places, config, out=tmp_path / "cut", resume=True, quiet=True)
    assert same(whole, resumed.network.state_dict())


def test_run_folder_refuses_what_is_not_its_own(tmp_path: Path) -> None:
    images, places = bars()
    config = replace(CONFIG, steps=2)
    cml.fit(images, places, config, out=tmp_path / "run", quiet=True)
    with pytest.raises(UserError, match="holds a finished run"):
        cml.fit(images, places, config, out=tmp_path / "run", quiet=True)
    with pytest.raises(UserError, match=r"started with steps=2, now steps=3"):
        cml.fit(images, places, replace(config, steps=3), out=tmp_path / "run", resume=True, quiet=True)
    elsewhere = replace(config, workers=1, worker_timeout=9.0, checkpoint_every=1, cache_bytes=0, device="cpu")
    cml.fit(images, places, elsewhere, out=tmp_path / "run", resume=True, quiet=True)  # how, not what
    with pytest.raises(UserError, match="another dataset"):
        cml.fit(images, places + 1, config, out=tmp_path / "run", resume=True, quiet=True)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="not an empty folder"):
        cml.fit(images, places, config, out=tmp_path / "taken", quiet=True)


def test_finished_run_is_not_trained_again_and_loads(tmp_path: Path) -> None:
    images, places = bars()
    config = replace(CONFIG, steps=3)
    model = cml.fit(images, places, config, out=tmp_path / "run", quiet=True)
    again = cml.fit(images, places, config, out=tmp_path / "run", resume=True, quiet=True)
    assert same(model.network.state_dict(), again.network.state_dict())
    np.testing.assert_array_equal(cml.load(tmp_path / "run").embed(images), model.embed(images))


def test_damaged_run_files_are_named(tmp_path: Path) -> None:
    images, places = bars()
    run = tmp_path / "run"
    cml.fit(images, places, replace(CONFIG, steps=2), out=run, quiet=True)
    whole = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"model\.safetensors is damaged"):
        cml.load(run)
    (run / "checkpoints" / "last.pt").write_bytes(b"no checkpoint")
    with pytest.raises(DataError, match=r"last\.pt is damaged"):
        cml.fit(images, places, replace(CONFIG, steps=2), out=run, resume=True, quiet=True)
    (run / "metrics.jsonl").write_text('{"step": 1, "loss": 1}\nnonsense\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl:2"):
        read_metrics(run / "metrics.jsonl")
    for text, message in (("{", "cannot be parsed"), ("{}", "is not a run's config")):
        (run / "config.json").write_text(text)
        with pytest.raises(DataError, match=message):
            cml.load(run)
    with pytest.raises(DataError, match="is not a folder"):
        cml.load(tmp_path / "nowhere")


def test_checkpoint_is_no_pickle_door(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "owned"),)

    images, places = bars()
    config = replace(CONFIG, steps=2)
    cml.fit(images, places, config, out=tmp_path / "run", quiet=True)
    torch.save({"step": Evil()}, tmp_path / "run" / "checkpoints" / "last.pt")
    with pytest.raises(DataError, match="damaged"):
        cml.fit(images, places, config, out=tmp_path / "run", resume=True, quiet=True)
    assert not (tmp_path / "owned").exists()


def test_best_weights_are_kept_when_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    images, places = bars()
    scores = iter([3.0, 1.0, 2.0])
    seen: list[dict[str, torch.Tensor]] = []

    def validate(model: EmbeddingModel, held_out: LabelledItems, **_: object) -> float:
        assert not model.training
        assert len(held_out) == 8
        seen.append({name: value.clone() for name, value in model.state_dict().items()})
        return next(scores)

    distance = distances.get("euclidean")
    data = LabelledItems(Images(images, (16, 16)), distance.encode(places.tolist()), distance)
    monkeypatch.setattr("cml.training.validation.held_out_score", validate)
    trained = GradientDescent(replace(CONFIG, evaluate_every=4)).learn(data, place=Place(quiet=True))
    assert same(trained.model.state_dict(), seen[1])
    assert [record["validation"] for record in trained.metrics if "validation" in record] == [3.0, 1.0, 2.0]


def train_scored(monkeypatch: pytest.MonkeyPatch, config: TrainConfig, *scores: float, quiet: bool = True) -> Learned:
    """Train with validation scores that do not depend on the model."""
    left = iter(scores)
    monkeypatch.setattr("cml.training.validation.held_out_score", lambda network, items, **_: next(left))
    return GradientDescent(config).learn(bars_data(), place=Place(quiet=quiet))


def bars_data() -> LabelledItems:
    images, places = bars()
    distance = distances.get("euclidean")
    return LabelledItems(Images(images, (16, 16)), distance.encode(places.tolist()), distance)


def test_a_run_ends_after_as_many_validations_without_improvement_as_it_has_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = replace(CONFIG, steps=12, evaluate_every=2, patience=2)
    trained = train_scored(monkeypatch, config, 3, 2, 2, 2)
    assert [record["step"] for record in trained.metrics if "loss" in record] == list(range(1, 9))
    assert [record["validation"] for record in trained.metrics if "validation" in record] == [3, 2, 2, 2]
    at_best = train_scored(monkeypatch, replace(config, patience=0), 3, 1, 2, 2, 2, 2)
    assert len([record for record in at_best.metrics if "loss" in record]) == 12  # 0 never ends it
    assert same(trained.model.state_dict(), at_best.model.state_dict())  # both have the weights of step 4
    with pytest.raises(UserError, match="'patience' counts validations: set 'evaluate_every'"):
        check_options(replace(CONFIG, patience=2))


@pytest.mark.slow
@pytest.mark.parametrize("end", [5, 7, 8])
def test_a_run_cut_off_and_resumed_loses_its_patience_where_the_whole_run_does(
    end: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, places = bars()
    config = replace(CONFIG, evaluate_every=2, patience=2, checkpoint_every=1)

    def score(network: EmbeddingModel, held_out: LabelledItems, **_: object) -> float:
        # of the weights alone, so that it is the same in every run; the first moves of the head make it worse
        return float(network.head.weight.detach().double().square().mean())

    monkeypatch.setattr("cml.training.validation.held_out_score", score)
    monkeypatch.setattr("cml.training.optimizer.learning_rate_factor", lambda config, step: 1 if step < 4 else 0)
    cml.fit(images, places, config, out=tmp_path / "whole", quiet=True)
    whole = read_metrics(tmp_path / "whole" / "metrics.jsonl")
    last = whole[-1]["step"]
    assert last < 12
    save = Checkpoint.save

    def save_and_stop(self: Checkpoint, run: Path | None, step: int) -> None:
        save(self, run, step)
        if step == min(end, last):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            cml.fit(images, places, config, out=tmp_path / "cut", quiet=True)
    cml.fit(images, places, config, out=tmp_path / "cut", resume=True, quiet=True)
    assert read_metrics(tmp_path / "cut" / "metrics.jsonl") == whole
    assert same(weights(tmp_path / "cut"), weights(tmp_path / "whole"))
    cml.fit(images, places, config, out=tmp_path / "cut", resume=True, quiet=True)  # which has nothing left to do
    assert read_metrics(tmp_path / "cut" / "metrics.jsonl") == whole


def test_fit_validates_on_held_out_items() -> None:
    images, places = bars()
    for freeze in (False, True):
        config = replace(CONFIG, evaluate_every=4, freeze_backbone=freeze)
        trained = GradientDescent(config).learn(bars_data(), place=Place(quiet=True))
        kept, held_out = bars_data().split(HoldOut(config))
        assert [record["step"] for record in trained.metrics if "validation" in record] == [4, 8, 12]
        best = min(record["validation"] for record in trained.metrics if "validation" in record)
        # by hand: each held-out item ranks the 7 others
        rows = np.asarray(held_out.origin)
        found, labels = trained.model.embed(images[rows]), places[rows]
        near, true = np.linalg.norm(found[:, None] - found, axis=2), np.abs(labels[:, None] - labels)
        others = [np.delete(np.arange(8), item) for item in range(8)]
        rho = [spearmanr(near[item, rest], true[item, rest])[0] for item, rest in enumerate(others)]
        assert best == pytest.approx(1 - np.mean(rho), abs=1e-6)
        assert (len(kept), len(held_out)) == (len(images) - 8, 8)


@pytest.mark.parametrize("count", [8, 12, 20, 40])
def test_the_validation_score_tells_however_few_items_are_held_out(count: int) -> None:
    places = np.random.default_rng(0).uniform(size=count)
    distance = distances.get("euclidean")
    data = LabelledItems(Vectors(places[:, None].astype(np.float32)), distance.encode(places.tolist()), distance)

    class Noisy:
        def __init__(self, noise: float) -> None:
            self.noise = noise

        def embed(self, features: Vectors) -> Float32:
            one = features.read(np.arange(len(features)))
            return (one + self.noise * np.random.default_rng(1).normal(size=one.shape)).astype(np.float32)

    scores = [held_out_score(Noisy(noise), data, order=label_order(data), ranks=Ranks()) for noise in (0, 0.1, 0.5, 9)]
    assert scores[0] == pytest.approx(0, abs=1e-6)
    assert scores == sorted(set(scores))

    class Collapsed:
        def embed(self, features: Vectors) -> Float32:
            return np.ones((len(features), 3), np.float32)

    assert held_out_score(Collapsed(), data, order=label_order(data), ranks=Ranks()) == 1


def test_too_few_items_or_labels_that_are_all_alike_cannot_validate() -> None:
    images, places = bars(15)
    config = replace(CONFIG, evaluate_every=2, sampler="random(batch_size=4)", steps=2)
    with pytest.raises(UserError, match="15 training items are too few to hold 8 of them out for validation: at least"):
        cml.fit(images, places, config, quiet=True)
    images, places = bars(16)
    cml.fit(images, places, config, quiet=True)
    places[8:] = 1
    with pytest.raises(UserError, match="labels of the 8 items held out for validation cannot be ranked: all are equ"):
        cml.fit(images, places, config, groups=np.arange(16) // 8, quiet=True)  # which holds the last half out


def test_a_run_says_which_step_it_kept_and_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(CONFIG, steps=12, evaluate_every=2)
    for patience, scores, said in (
        (0, (3, 1, 2, 2, 2, 2), "kept step 4 of 12: the best validation, 1 on 8 held-out items (the worst had 3)\n"),
        (2, (3, 1, 2, 2), "the worst had 3); ended at step 8 after 2 validations without a better one\n"),
        (0, (1,) * 6, "kept step 12, the last: all validations scored 1\n"),
    ):
        train_scored(monkeypatch, replace(config, patience=patience), *scores, quiet=False)
        assert capsys.readouterr().err.endswith(said)


def sampler_of(config: TrainConfig) -> sampling.Sampler:
    return sampling.get(config.sampler)


def test_a_batch_larger_than_the_data_becomes_smaller_and_says_so() -> None:
    images, places = bars(30)
    config = replace(CONFIG, steps=1, sampler="random")
    with pytest.warns(UserWarning, match="A batch takes 150 items, but there are 30: the sampler is random.batch"):
        cml.fit(images, places, config)
    assert reduce_batch_size(config, 30, sampler_of(config), warn=False).sampler == "random(batch_size=15)"
    assert reduce_batch_size(config, 150, sampler_of(config)) == config
    distance = distances.get("euclidean")
    items = LabelledItems(Images(images, (16, 16)), distance.encode(places.tolist()), distance)
    with pytest.raises(UserError, match="takes 150 different items, but there are 30"):
        GradientDescent(config).check(items)
    grouped = replace(config, sampler="grouped")
    assert reduce_batch_size(grouped, 30, sampler_of(grouped), warn=False).sampler == "random(batch_size=15)"
    classes = replace(config, sampler="per-class(per_class=3)")
    assert (
        reduce_batch_size(classes, 30, sampler_of(classes), warn=False).sampler
        == "per-class(per_class=3, batch_size=15)"
    )


def test_frozen_backbone_trains_the_head_alone() -> None:
    images, places = bars()
    config = replace(CONFIG, freeze_backbone=True)
    early, late = (
        cml.fit(images, places, replace(config, steps=steps), quiet=True).network.state_dict() for steps in (1, 12)
    )
    moved = {name for name in late if not torch.equal(early[name], late[name])}
    assert moved == {"head.weight", "head.bias"}


def test_bfloat16_and_sgd_and_clipping_train() -> None:
    images, places = bars()
    config = replace(
        CONFIG,
        precision="bfloat16",
        optimizer="sgd",
        schedule="inverse",
        clip_gradient=1.0,
        warmup=3,
        learning_rate=0.01,
    )
    distance = distances.get("euclidean")
    data = LabelledItems(Images(images, (16, 16)), distance.encode(places.tolist()), distance)
    losses = [record["loss"] for record in GradientDescent(config).learn(data, place=Place(quiet=True)).metrics]
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[0]


def test_loss_that_is_no_number_stops_the_run_and_names_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    images, places = bars()
    with pytest.raises(FloatingPointError, match=r"at step \d+: lower the learning_rate"):
        cml.fit(images, places, replace(CONFIG, learning_rate=1e30, optimizer="sgd"), quiet=True)


def test_schedules() -> None:
    paper = replace(CONFIG, schedule="inverse")
    assert learning_rate_factor(paper, 10_000) == pytest.approx(0.5)
    cosine = replace(CONFIG, schedule="cosine", steps=100, warmup=10)
    assert learning_rate_factor(cosine, 0) == pytest.approx(0.1)
    assert learning_rate_factor(cosine, 50) == pytest.approx(0.5)
    assert learning_rate_factor(cosine, 99) < 0.001
    assert learning_rate_factor(replace(CONFIG, schedule="constant"), 7) == 1
    halved = replace(CONFIG, schedule="step(every=10, decay=0.5)")
    assert [learning_rate_factor(halved, step) for step in (0, 9, 10, 25)] == [1, 1, 0.5, 0.25]
    late = replace(CONFIG, schedule="step(every=10, first=15, decay=0.5)")
    factors = [learning_rate_factor(late, step) for step in range(40)]
    assert factors == [1.0] * 15 + [0.5] * 10 + [0.25] * 10 + [0.125] * 5
    for given, said in (
        ("step", "needs the setting 'every'"),
        ("step(every=0)", "'every' must be a whole number of at least 1"),
        ("step(every=9, first=0)", "'first' must be a whole number of at least 1"),
        ("inverse(decay=-1)", "'decay' must be a finite number at least 0"),
        ("inverse(rate=1)", "rate"),
    ):
        with pytest.raises(UserError, match=said):
            check_options(replace(CONFIG, schedule=given))


def test_the_backbone_may_wait() -> None:
    images, places = bars()
    config = replace(CONFIG, steps=3, weight_decay=0.1)
    begun, waited, learnt = (
        cml.fit(images, places, replace(config, head_first=first, steps=steps), quiet=True)
        for first, steps in ((1, 1), (3, 3), (2, 3))
    )

    def weights_of(model: cml.Model) -> list[torch.Tensor]:
        return [one.detach() for one in model.network.backbone.parameters()]

    assert all(torch.equal(one, two) for one, two in zip(weights_of(begun), weights_of(waited), strict=True))
    assert not torch.equal(begun.network.head.weight, waited.network.head.weight)
    assert not all(torch.equal(one, two) for one, two in zip(weights_of(waited), weights_of(learnt), strict=True))


def source(flip: str, twins: bool = False) -> BatchSource:
    images, places = bars()
    distance = distances.get("euclidean")
    mirrored = distance.encode((16 - places).tolist()) if twins else None
    data = LabelledItems(Images(images, (16, 16)), distance.encode(places.tolist()), distance, mirrored)
    sampler = sampling.get("random", batch_size=30)
    return BatchSource(data, sampler, np.empty((60, 0), np.int32), replace(CONFIG, flip=flip))


def centers(boxes: torch.Tensor) -> np.ndarray:
    light = boxes[:, 0].double().sum(dim=1)
    return ((light * (torch.arange(16) + 0.5)).sum(dim=1) / light.sum(dim=1)).numpy()


def test_list_flip_mirrors_all_or_none_and_keeps_label_distances() -> None:
    plain, flipped = source("none"), source("list")
    kinds = set()
    for step in range(12):
        boxes, block, _ = plain[step]
        turned, same_block, _ = flipped[step]
        torch.testing.assert_close(block, same_block)
        kinds.add(
            "flipped" if torch.equal(turned, boxes.flip(3)) else "kept" if torch.equal(turned, boxes) else "mixed"
        )
    assert kinds == {"flipped", "kept"}


def test_image_flip_mirrors_the_label_with_its_image() -> None:
    boxes, block, _ = source("image", twins=True)[0]
    places = centers(boxes)
    # what the label distances say is what the mirrored pictures show
    shown = np.abs(places[:, None] - places[None, :])
    assert np.abs(shown - block.numpy()).max() < 1.5
    assert not torch.equal(boxes, source("none")[0][0])


def test_config_survives_json_and_names_what_is_wrong(tmp_path: Path) -> None:
    saved = json.loads(json.dumps(asdict(CONFIG)))
    assert saved_options(TrainConfig, saved, "config.json", "a config") == CONFIG
    for change, message in (
        ({"steps": "many"}, "'steps' cannot be 'many'"),
        ({"image_size": [16]}, "'image_size'"),
        ({"optimizer": "lion"}, "Unknown optimizer 'lion'"),
        ({"colour": 1}, "'colour', which this version"),
        ({"steps": 3.0}, "'steps' cannot be 3.0: expected int, got float"),
        ({"steps": True}, "'steps' cannot be True"),
        ({"learning_rate": 10**400}, "'learning_rate' cannot be 10+[.]+0+: number out of range"),
        ({"learning_rate": math.inf}, r"config.json: 'learning_rate' must be a finite number. Got inf"),
        ({"steps": 0}, r"config.json: 'steps' must be 1 or more. Got 0"),
    ):
        with pytest.raises(DataError, match=message):
            saved_options(TrainConfig, saved | change, "config.json", "a config")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "'steps' must be 1 or more. Got 0"),
        ({"learning_rate": math.nan}, "'learning_rate'"),
        ({"crop": 1.5}, "'crop' must be at most 1"),
        ({"clip_gradient": -1.0}, "'clip_gradient'"),
        ({"flip": "list", "freeze_backbone": True}, "set 'flip' to none"),
    ],
)
def test_options_out_of_range_are_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_options(replace(CONFIG, **change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "log-ration"}, "Unknown loss 'log-ration'. Did you mean 'log-ratio'"),
        ({"loss": "log-ratio(weight=rank)"}, "no setting 'weight'"),
        ({"backbone": "resnet341"}, "Unknown backbone 'resnet341'. Did you mean 'resnet34'"),
        ({"backbone": "small-cnn", "weights": "imagenet"}, "no published weights"),
        ({"label_distance": "euclid"}, "Unknown label distance 'euclid'"),
        ({"device": "cuda:77"}, "'cuda:77' is not available"),
        ({"flip": "image"}, "set 'flip' to list or none"),
    ],
)
def test_wrong_choices_are_one_clear_error(change: dict[str, object], message: str) -> None:
    images, places = bars()
    with pytest.raises(UserError, match=message):
        cml.fit(images, places, replace(CONFIG, **change), quiet=True)


def test_labels_and_images_must_fit() -> None:
    images, places = bars()
    with pytest.raises(UserError, match="60 images and 59 labels"):
        cml.fit(images, places[:-1], CONFIG, quiet=True)
    with pytest.raises(UserError, match="nan"):
        cml.fit(images, np.where(np.arange(60) == 7, np.nan, places), CONFIG, quiet=True)


def test_auto_device_is_one_that_works() -> None:
    assert torch.ones(2, device=pick_device("auto")).sum() == 2


def test_run_config_round_trip(tmp_path: Path) -> None:
    images, places = bars()
    cml.fit(images, places, replace(CONFIG, steps=1), out=tmp_path / "run", quiet=True)
    constants = json.loads((tmp_path / "run" / "config.json").read_text())["loss_constants"]
    distances_of_pairs = np.abs(places[:, None] - places[None, :])[np.triu_indices(60, 1)]
    floor = np.quantile(distances_of_pairs, 0.02)
    assert constants["floor"] == pytest.approx(floor, rel=1e-5)
    assert constants["label_exponent"] == pytest.approx(1 / np.log(distances_of_pairs.clip(floor)).std(), rel=1e-5)
    saved = RunConfig.load(tmp_path / "run")
    assert saved.train == replace(CONFIG, steps=1)
    saved.save(tmp_path / "run")
    assert RunConfig.load(tmp_path / "run") == saved
    with_plugins = replace(saved, plugins=(("mine.py", "ab12"),))
    with_plugins.save(tmp_path / "run")
    assert RunConfig.load(tmp_path / "run") == with_plugins


def test_a_run_config_may_lack_what_has_a_default(tmp_path: Path) -> None:
    images, places = bars()
    cml.fit(images, places, replace(CONFIG, steps=1), out=tmp_path / "run", quiet=True)
    path = tmp_path / "run" / "config.json"
    value, now = json.loads(path.read_text()), RunConfig.load(tmp_path / "run")
    del value["plugins"], value["train"]["worker_timeout"]
    path.write_text(json.dumps(value))
    assert RunConfig.load(tmp_path / "run") == now
    cml.load(tmp_path / "run")
    for change, message in (
        ({"model": value["model"] | {"dimension": 0}}, "config.json: 'dimension' must be 1 or more"),
        ({"model": value["model"] | {"dimension": "8"}}, "the option 'dimension' cannot be '8': expected int"),
        ({"model": value["model"] | {"colour": 8}}, "has the option 'colour'"),
        ({"plugins": [["a"]]}, "the option 'plugins' cannot be"),
        ({"task": 1}, "the option 'task' cannot be 1: expected str"),
    ):
        path.write_text(json.dumps(value | change))
        with pytest.raises(DataError, match=message):
            RunConfig.load(tmp_path / "run")


@dataclass(frozen=True, eq=False)
class Declared(LabelDistance):
    """What a user's own class declares of its symmetry, right or wrong."""

    symmetric: bool
    matrix: Any
    name: ClassVar[str] = "declared"
    unit = "m"

    @property
    def is_symmetric(self) -> bool:
        return self.symmetric

    def encode(self, labels: Sequence[Any]) -> Labels:
        return Labels({"rows": np.array(labels)})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        return np.asarray(self.matrix[a.arrays["rows"]][:, b.arrays["rows"]], np.float32)


@pytest.mark.parametrize("anchors", [6, 3])
def test_asymmetric_label_distances_are_refused_unless_declared(anchors: int) -> None:
    _, places = bars(8)
    matrix = np.abs(places[:, None] - places).astype(np.float32)
    items = np.array([7, 2, 4, 0, 1, 5])

    def block(symmetric: bool) -> torch.Tensor:
        distance = Declared(symmetric, matrix)
        labels = distance.encode(list(range(8)))
        training = TrainingTargets(distance, labels)
        return torch.from_numpy(BatchTargets(training, items, labels[items], anchors).label_distances())

    matrix[2, 7] *= 1 + 1e-6
    assert block(symmetric=True).shape == (anchors, 6)  # rounding
    matrix[0, 5] = matrix[4, 2] = 9
    matrix[2, 4] = 2
    if anchors == 6:
        matrix[1, 5] = np.inf
    one, other, there, back = (1, 5, "inf", f"{matrix[5, 1]:g}") if anchors == 6 else (4, 2, "9", "2")
    with pytest.raises(UserError) as caught:
        block(symmetric=True)
    assert "'declared' gives" in str(caught.value)
    assert f"item {one} to {other}, but" in str(caught.value) or f"item {other} to {one}, but" in str(caught.value)
    assert there in str(caught.value)
    assert back in str(caught.value)
    np.testing.assert_array_equal(block(symmetric=False), matrix[items[:anchors]][:, items])


def test_declared_asymmetric_label_distance_trains(tmp_path: Path) -> None:
    images, places = bars(30)
    matrix = np.abs(places[:, None] - places) * np.where(places[:, None] < places, 1, 2)
    np.save(tmp_path / "matrix.npy", matrix.astype(np.float32))
    written = f"precomputed(path='{tmp_path / 'matrix.npy'}', symmetric=%s)"
    config = replace(CONFIG, steps=2, sampler="random(batch_size=12)")
    cml.fit(images, list(range(30)), replace(config, label_distance=written % "False"), quiet=True)
    with pytest.raises(UserError, match="or give symmetric=False if the distance from i to j"):
        cml.fit(images, list(range(30)), replace(config, label_distance=written % "True"), quiet=True)
