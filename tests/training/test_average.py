"""The exponential moving average of weights, against a loop over the weights of every step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_training import CONFIG, bars, bars_data, same, weights

import cml
from cml.errors import DataError, UserError
from cml.items import LabelledItems
from cml.models.embedding import EmbeddingModel
from cml.option_types import check_options
from cml.training.checkpoint import CHECKPOINT, Checkpoint
from cml.training.gradient_descent import GradientDescent
from cml.training.learner import Place

AVERAGED = replace(CONFIG, ema_decay=0.7, checkpoint_every=1)


def slow_average(steps: list[dict[str, torch.Tensor]], decay: float) -> dict[str, np.ndarray]:
    """The average of the weights after each step, number by number in float64."""
    found: dict[str, np.ndarray] = {}
    for name in steps[0]:
        total = np.zeros_like(steps[0][name].double().numpy())
        for step, now in enumerate(steps, 1):
            kept = min(decay, (step - 1) / (step + 8))
            total = kept * total + (1 - kept) * now[name].double().numpy()
        found[name] = total
    return found


@pytest.mark.parametrize("options", [{}, {"freeze_backbone": True}, {"micro_batch": 5}, {"batch_norm": "fixed"}])
@pytest.mark.filterwarnings("ignore:The network has batch normalisation")
def test_a_run_ends_with_the_average_of_its_weights_and_statistics(options: dict[str, object]) -> None:
    after: list[dict[str, torch.Tensor]] = []
    watch = cml.Callback(
        on_step=lambda state: after.append({name: one.clone() for name, one in held(state.model).items()})
    )
    model = cml.fit(*bars(), AVERAGED, callbacks=[watch], quiet=True, **options)  # type: ignore[arg-type]
    assert len(after) == CONFIG.steps
    wanted, found = slow_average(after, 0.7), model.network.state_dict()
    assert found.keys() == wanted.keys()
    assert any("running_var" in name for name in found)
    for name, one in found.items():
        if name.endswith("num_batches_tracked"):  # a count, no weight
            assert torch.equal(one, after[-1][name])
        else:
            np.testing.assert_allclose(one.numpy(), wanted[name], rtol=1e-4, atol=1e-6)
    assert not torch.allclose(found["head.weight"], after[-1]["head.weight"])


def held(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The weights of what is trained, without the name of what holds them."""
    return {name.removeprefix("model."): one for name, one in network.state_dict().items()}


def test_training_itself_does_not_see_the_average() -> None:
    heads: dict[float, list[torch.Tensor]] = {0.0: [], 0.7: []}
    kept = []
    for decay, seen in heads.items():
        watch = cml.Callback(on_step=lambda state, seen=seen: seen.append(state.model.head.weight.detach().clone()))
        config = replace(CONFIG, ema_decay=decay, evaluate_every=4)
        kept.append(cml.fit(*bars(), config, callbacks=[watch], quiet=True).network.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(*heads.values(), strict=True))
    assert not same(*kept)


def test_the_average_is_what_is_validated_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, scores = [], iter([3.0, 1.0, 2.0])
    after: list[dict[str, torch.Tensor]] = []

    def validate(model: EmbeddingModel, held_out: LabelledItems, **_: object) -> float:
        seen.append({name: one.clone() for name, one in model.state_dict().items()})
        return next(scores)

    watch = cml.Callback(
        on_step=lambda state: after.append({name: one.clone() for name, one in state.model.state_dict().items()})
    )
    config = replace(AVERAGED, evaluate_every=4)
    monkeypatch.setattr("cml.training.validation.held_out_score", validate)
    trained = GradientDescent(config).learn(bars_data(), place=Place(callbacks=[watch], quiet=True))
    for number, found in enumerate(seen, 1):
        wanted = slow_average(after[: 4 * number], 0.7)["head.weight"]
        np.testing.assert_allclose(found["head.weight"].numpy(), wanted, rtol=1e-4, atol=1e-6)
    assert same(trained.model.state_dict(), seen[1])


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"evaluate_every": 4}])
def test_a_run_cut_off_and_resumed_has_the_average_of_the_whole_run(
    options: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(AVERAGED, **options)  # type: ignore[arg-type]
    cml.fit(*bars(), config, out=tmp_path / "whole", quiet=True)
    save = Checkpoint.save

    def save_and_stop(self: Checkpoint, run: Path | None, step: int) -> None:
        save(self, run, step)
        if step == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            cml.fit(*bars(), config, out=tmp_path / "cut", quiet=True)
    for _ in range(2):  # the second time nothing is left to do
        model = cml.fit(*bars(), config, out=tmp_path / "cut", resume=True, quiet=True)
        assert same(weights(tmp_path / "cut"), weights(tmp_path / "whole"))
        assert same(model.network.state_dict(), weights(tmp_path / "whole"))

    state = torch.load(tmp_path / "cut" / CHECKPOINT, weights_only=True)
    del state["parts"]["average"]["head.bias"]
    torch.save(state, tmp_path / "cut" / CHECKPOINT)
    with pytest.raises(DataError, match="the average is of another model"):
        cml.fit(*bars(), config, out=tmp_path / "cut", resume=True, quiet=True)


def test_a_decay_of_one_would_keep_nothing_of_the_run() -> None:
    for decay in (1.0, -0.1, float("nan")):
        with pytest.raises(UserError, match="'ema_decay' must be"):
            check_options(replace(CONFIG, ema_decay=decay))
