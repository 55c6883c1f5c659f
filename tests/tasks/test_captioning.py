from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from cml.errors import UserError
from cml.tasks.captioning.model import END, TopDown
from cml.tasks.captioning.scores import CiderD, score, unavailable
from cml.tasks.captioning.training import Captioned, CaptionerConfig, Vocabulary, caption, train_captioner

WORDS = ["a", "red", "blue", "ball", "box", "lies", "on", "the", "left", "of", "tree", "and", "two"]


def random_captions(rng: np.random.Generator, images: int) -> list[list[list[str]]]:
    return [[list(rng.choice(WORDS, rng.integers(1, 9))) for _ in range(rng.integers(1, 6))] for _ in range(images)]


def test_cider_d_is_the_packages_to_rounding() -> None:
    cider = pytest.importorskip("pycocoevalcap.cider.cider")
    rng = np.random.default_rng(0)
    references = random_captions(rng, 30)
    candidates = [list(rng.choice([*WORDS, "zebra"], rng.integers(0, 9))) for _ in range(30)]
    truth = {image: [" ".join(text) for text in texts] for image, texts in enumerate(references)}
    _, expected = cider.Cider().compute_score(truth, {i: [" ".join(text)] for i, text in enumerate(candidates)})
    ours = CiderD(references)
    assert [ours(image, text) for image, text in enumerate(candidates)] == pytest.approx(list(expected), abs=1e-9)
    assert max(expected) > 1


def tiny(words: int = 5, seed: int = 0) -> tuple[TopDown, torch.Tensor]:
    torch.manual_seed(seed)
    captioner = TopDown(words, features=3, hidden=8).eval()
    with torch.no_grad():  # far from uniform, so that searches differ
        captioner.say[1].weight.mul_(6)
    return captioner, torch.randn(4, 6, 3)


def log_probability(captioner: TopDown, features: torch.Tensor, text: Sequence[int], longest: int) -> float:
    """Of one caption for one image, word by word."""
    regions, state, word, total = captioner.look(features[None]), captioner.start(1), END, 0.0
    for upcoming in [*text, END][:longest]:
        logits, state = captioner.step(regions, state, torch.tensor([word]))
        total += float(logits.log_softmax(dim=1)[0, upcoming])
        word = upcoming
    return total


@torch.no_grad()
def test_teacher_forcing_gives_what_single_steps_give() -> None:
    captioner, features = tiny()
    texts = torch.tensor([[1, 2, 3], [4, 4, 1], [2, 2, 2], [3, 1, 4]])
    logits = captioner(captioner.look(features), texts).log_softmax(dim=2)
    for image in range(4):
        words = [*texts[image].tolist(), END]
        forced = sum(float(logits[image, place, word]) for place, word in enumerate(words))
        assert forced == pytest.approx(log_probability(captioner, features[image], words[:-1], 4), abs=1e-5)


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("seed", range(5))
def test_one_beam_is_greedy_and_all_beams_find_the_likeliest_caption(seed: int) -> None:
    captioner, features = tiny(seed=seed)
    regions = captioner.look(features)
    greedy, said = captioner.speak(regions, 3, sample=False)
    one = captioner.search(regions, 3, beams=1)
    assert torch.equal(one[:, : greedy.shape[1]], greedy)
    everything = captioner.search(regions, 3, beams=125)
    ended = [text for length in range(4) for text in itertools.product(range(1, 5), repeat=length)]
    for image in range(4):
        best = max(ended, key=lambda text, image=image: log_probability(captioner, features[image], text, 3))
        assert [word for word in everything[image].tolist() if word != END] == list(best)
        words = greedy[image].tolist()
        length = words.index(END) if END in words else len(words)
        expected = log_probability(captioner, features[image], words[:length], 3)
        assert float(said[image].sum()) == pytest.approx(expected, abs=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("seed", range(3))
def test_a_word_that_may_not_be_said_is_left_out_of_the_search_alone(seed: int) -> None:
    captioner, features = tiny(seed=seed)
    allowed = [text for length in range(4) for text in itertools.product((1, 2, 3), repeat=length)]
    found = captioner.search(captioner.look(features), 3, beams=125, without=4)
    for image in range(4):
        best = max(allowed, key=lambda text, image=image: log_probability(captioner, features[image], text, 3))
        assert [word for word in found[image].tolist() if word != END] == list(best)


def test_captions_hold_known_words_alone() -> None:
    data = shown(60, 0)
    config = CaptionerConfig(hidden=16, min_count=100, words=8, batch_size=32, xe_steps=100, rl_steps=0, xe_rate=1e-2)
    trained = train_captioner(data, config, seed=0, quiet=True)
    # all but "a" is too rare to be known, so that unknown words are what it has mostly heard
    assert np.mean([word not in trained.vocabulary.words for texts in data.captions for word in texts[0]]) > 0.3
    for text in caption(trained.xe, trained.vocabulary, data.features, config):
        assert set(text) <= set(trained.vocabulary.words) - {"<unk>"}


def shown(images: int, seed: int) -> Captioned:
    """Two things a picture, one of them left of the other: features say which, captions name them."""
    rng = np.random.default_rng(seed)
    things = rng.integers(0, 3, (images, 2))
    features = np.zeros((images, 2, 4), np.float32)
    names = ("ball", "box", "tree")
    for image, (left, right) in enumerate(things):
        features[image, 0, left] = features[image, 1, right] = 1
        features[image, 0, 3] = 1  # where left is
    texts = [[f"a {names[a]} left of a {names[b]}".split(), f"{names[a]} and {names[b]}".split()] for a, b in things]
    return Captioned(features, texts)


@pytest.mark.slow
def test_training_learns_to_say_what_is_seen_and_self_critical_training_does_not_unlearn_it() -> None:
    config = CaptionerConfig(hidden=32, min_count=1, words=8, batch_size=32, xe_steps=150, rl_steps=10, xe_rate=1e-2)
    trained = train_captioner(shown(120, 0), config, seed=0, quiet=True)
    again = train_captioner(shown(120, 0), config, seed=0, quiet=True)
    test = shown(40, 1)
    reward = CiderD(test.captions)
    assert trained.rl is not None
    for captioner in (trained.xe, trained.rl):
        texts = caption(captioner, trained.vocabulary, test.features, config)
        right = [text in truth for text, truth in zip(texts, test.captions, strict=True)]
        assert np.mean(right) > 0.9
        assert np.mean([reward(image, text) for image, text in enumerate(texts)]) > 4
    for ours, same in zip(trained.rl.parameters(), again.rl.parameters() if again.rl else (), strict=True):
        assert torch.equal(ours, same)


@pytest.mark.slow
def test_self_critical_training_raises_its_reward() -> None:
    data = shown(120, 0)
    rare = [[texts[0], *[texts[1]] * 4] for texts in data.captions]  # people mostly say the short form
    wanted = Captioned(data.features, rare)
    config = CaptionerConfig(hidden=32, min_count=1, words=8, batch_size=60, xe_steps=60, rl_steps=60, rl_rate=2e-3)
    trained = train_captioner(wanted, config, seed=1, quiet=True)
    assert trained.rl is not None
    reward = CiderD(wanted.captions)

    def mean(captioner: TopDown) -> float:
        texts = caption(captioner, trained.vocabulary, data.features, config)
        return float(np.mean([reward(image, text) for image, text in enumerate(texts)]))

    assert mean(trained.rl) > mean(trained.xe) + 0.1


def test_a_vocabulary_knows_frequent_words_and_the_end() -> None:
    vocabulary = Vocabulary([[["a", "ball"], ["a", "box"]], [["a", "ball", "lies"]]], min_count=2)
    assert vocabulary.words == ["", "a", "ball", "<unk>"]
    assert vocabulary.encode(["a", "box"], 4) == [1, 3, 0, 0]
    assert vocabulary.encode(["a"] * 9, 4) == [1, 1, 1, 1]
    assert vocabulary.decode([1, 2, 0, 1]) == ["a", "ball"]


def test_scores_are_the_packages_and_say_what_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pycocoevalcap.bleu.bleu")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    found, failed = score({"1": ["a red ball", "the ball"], "2": ["two trees"]}, {"1": "a red ball", "2": "two boxes"})
    assert sorted(found) == ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "CIDEr-D", "ROUGE-L"]
    assert found["BLEU-1"] == pytest.approx(4 / 5)
    assert failed == []
    assert {name: line.split(":")[0] for name, line in unavailable().items()} == {
        "METEOR": "METEOR is left out",
        "SPICE": "SPICE is left out",
    }
    with pytest.raises(UserError, match="'2' is only in one of them"):
        score({"1": ["a"]}, {"1": "a", "2": "b"})


@pytest.mark.parametrize("wrong", [{"hidden": 0}, {"rl_steps": -1}, {"xe_rate": 0.0}, {"beams": 0}])
def test_options_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        CaptionerConfig(**wrong)  # type: ignore[arg-type]
