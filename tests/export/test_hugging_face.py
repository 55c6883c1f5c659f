"""Models on the hub, against a stand-in of its HTTP interface."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from export_runs import draw_images, make_run
from hub_stand_in import Repository, StandIn, stand_in
from huggingface_hub import constants
from huggingface_hub.utils import close_session

import cml
from cml.cli import main
from cml.errors import UserError

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 36, 36, 3), np.uint8)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [make_run(tmp_path_factory.mktemp("runs") / str(seed), seed) for seed in (0, 1)]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandIn]:
    with stand_in() as hub:
        point_to(hub.endpoint, monkeypatch, tmp_path / "cache")
        monkeypatch.setenv("HF_TOKEN", hub.token)
        yield hub
        assert not hub.refused
        close_session()


def point_to(endpoint: str, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Let the hub's client, which reads its environment when it is imported, speak with another hub."""
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    for name in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_XET"):
        monkeypatch.setattr(constants, name, name != "HF_HUB_OFFLINE")


def files_of(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in ("config.json", "model.safetensors")}


def nowhere() -> str:
    """An endpoint at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def failure(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert main([str(one) for one in arguments]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    return lines[0]


def test_a_revision_is_pinned_and_said(hub: StandIn, runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    repository = hub.repositories["anna/ages"] = Repository()
    first = repository.commit(files_of(runs[0]))
    repository.tags["v1"] = first
    old = cml.load("hf:anna/ages", device="cpu").embed(IMAGES)
    np.testing.assert_array_equal(old, cml.load(runs[0], device="cpu").embed(IMAGES))
    assert f"hf:anna/ages is at {first}; hf:anna/ages@{first} stays with it" in capsys.readouterr().err

    second = repository.commit(files_of(runs[1]))
    new = cml.load("hf:anna/ages", device="cpu").embed(IMAGES)
    assert second in capsys.readouterr().err
    assert not np.array_equal(new, old)
    np.testing.assert_array_equal(cml.load("hf:anna/ages@v1", device="cpu").embed(IMAGES), old)
    assert f"hf:anna/ages@v1 is at {first}" in capsys.readouterr().err
    hub.asked.clear()
    np.testing.assert_array_equal(cml.load(f"hf:anna/ages@{first}", device="cpu").embed(IMAGES), old)
    assert not hub.asked  # it is in the cache
    assert not capsys.readouterr().err


def test_a_calibration_comes_along(hub: StandIn, runs: list[Path], tmp_path: Path) -> None:
    model = cml.load(runs[0], device="cpu")
    rng = np.random.default_rng(1)
    with pytest.warns(UserWarning, match="The calibration has 40 items"):
        calibration = model.calibrate(rng.integers(0, 256, (40, 36, 36, 3), np.uint8), rng.uniform(0, 1, 40))
    saved = model.save(tmp_path / "calibrated")
    hub.repositories["anna/ages"] = Repository()
    hub.repositories["anna/ages"].commit(
        {**files_of(saved), "calibration.json": (saved / "calibration.json").read_bytes()}
    )
    loaded = cml.load("hf:anna/ages", device="cpu").calibration
    assert loaded is not None
    assert loaded.lines() == calibration.lines()


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_killed_download_loses_no_calibration(
    kept: int, hub: StandIn, runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = hub.repositories["anna/ages"] = Repository()
    run = f"hf:anna/ages@{repository.commit({**files_of(runs[0]), 'calibration.json': b'{}'})}"
    fetched, download = [], huggingface_hub.hf_hub_download

    def fetch(name: str, file: str, **how: str) -> str:
        if len(fetched) == kept:
            raise KeyboardInterrupt
        fetched.append(file)
        return download(name, file, **how)

    with monkeypatch.context() as patch:
        patch.setattr(huggingface_hub, "hf_hub_download", fetch)
        with pytest.raises(KeyboardInterrupt):
            cml.load(run, device="cpu")
    model = cml.load(run, device="cpu")
    with pytest.raises(UserError, match=r"calibration\.json"):  # which is there, and damaged
        _ = model.calibration


def test_nothing_but_config_and_weights_is_read(
    hub: StandIn, runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    bad = {name: pickle.dumps(Trap()) for name in ("pytorch_model.bin", "checkpoints/last.pt", "loss.safetensors")}
    code = {"plugin.py": f"import os; os.mkdir({str(tmp_path / 'sprung')!r})".encode()}
    config = json.loads((runs[0] / "config.json").read_bytes())
    config["plugins"] = [["plugin.py", "0" * 64]]
    files = {**files_of(runs[0]), "config.json": json.dumps(config).encode()}
    hub.repositories["eve/trap"] = Repository()
    commit = hub.repositories["eve/trap"].commit({**files, **bad, **code})
    cml.load("hf:eve/trap", device="cpu").embed(IMAGES)
    assert not (tmp_path / "sprung").exists()
    assert {one.rpartition("/resolve/")[2] for one in hub.asked if "/resolve/" in one} == {
        f"{commit}/config.json",
        f"{commit}/model.safetensors",
    }
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.name in {*bad, *code, "last.pt"}]

    hub.repositories["eve/pickle"] = Repository()
    hub.repositories["eve/pickle"].commit({"config.json": files["config.json"], **bad})
    with pytest.raises(UserError, match=r"has no config.json and model.safetensors there, which 'cml export hub'"):
        cml.load("hf:eve/pickle")
    assert failure(capsys, "embed", "hf:eve/pickle", "--images", tmp_path, "--out", tmp_path / "e")
    assert not (tmp_path / "sprung").exists()


def test_what_is_missing_is_one_line(
    hub: StandIn, runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories["anna/ages"] = Repository()
    hub.repositories["anna/ages"].commit(files_of(runs[0]))
    hub.repositories["anna/empty"] = Repository()
    hub.repositories["anna/own"] = Repository(private=True)
    hub.repositories["anna/own"].commit(files_of(runs[0]))
    with pytest.raises(UserError, match=r"^hf:anna/none cannot be fetched: http://127.*/?\d+ has no such repository"):
        cml.load("hf:anna/none")
    with pytest.raises(UserError, match=r"has no such branch, tag or commit of it\.$"):
        cml.load("hf:anna/ages@v9")
    with pytest.raises(UserError, match=r"has no such branch, tag or commit of it\.$"):
        cml.load(f"hf:anna/ages@{'0' * 40}")
    with pytest.raises(UserError, match="hf:anna/empty cannot be fetched"):
        cml.load("hf:anna/empty")
    for name in ("ages", "anna/ages/x", "../x", "", "anna/ages\n"):
        with pytest.raises(UserError, match="must be named user/name"):
            cml.load(f"hf:{name}")
    cml.load("hf:anna/own", device="cpu")
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "another"))
    with pytest.raises(UserError, match="or it is private"):
        cml.load("hf:anna/own")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"The model hf:anna/ages needs the extra 'hub': pip install .*\[hub\]'"):
        cml.load("hf:anna/ages")


def test_without_a_network_a_commit_in_the_cache_loads_and_all_else_is_one_line(
    hub: StandIn, runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.repositories["anna/ages"] = Repository()
    commit = hub.repositories["anna/ages"].commit(files_of(runs[0]))
    endpoint = nowhere()
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    with monkeypatch.context() as offline:
        point_to(endpoint, offline, tmp_path / "cache")
        for name in ("hf:anna/ages", f"hf:anna/ages@{commit}"):
            with pytest.raises(UserError, match=rf"^{name} cannot be fetched: {endpoint} did not answer .*\.$"):
                cml.load(name)
        assert "did not answer" in failure(capsys, "embed", "hf:anna/ages", "--images", tmp_path, "--out", "x")
    cml.load("hf:anna/ages@main", device="cpu")
    with monkeypatch.context() as offline:
        point_to(endpoint, offline, tmp_path / "cache")
        cml.load(f"hf:anna/ages@{commit}", device="cpu")
        with pytest.raises(UserError, match="did not answer as expected"):
            cml.load("hf:anna/ages")  # whose commit nobody knows
    assert not waits  # nothing was tried again and again


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # the client's own, about its HTTP library
def test_push_makes_a_repository_that_loads(
    hub: StandIn, runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["export", "hub", runs[0], "--out", tmp_path / "a", "--push", "anna/ages", "--private", "--json"]
    assert main([str(one) for one in command]) == 0
    pushed = json.loads(capsys.readouterr().out)["pushed"]
    repository = hub.repositories["anna/ages"]
    assert repository.private
    (commit, files), *more = repository.commits.items()
    assert not more
    assert pushed == f"hf:anna/ages@{commit}"
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    own = {"README.md", "config.json", "model.safetensors"}
    assert set(files) == own | {"config_sentence_transformers.json", "modules.json"}
    assert b'cml.load("hf:anna/ages")' in files["README.md"]
    assert b"# ages\n" in files["README.md"]
    original = cml.load(runs[0], device="cpu").embed(IMAGES)
    np.testing.assert_array_equal(cml.load(pushed, device="cpu").embed(IMAGES), original)

    command = ["export", "hub", runs[1], "--out", tmp_path / "b", "--push", "anna/ages"]
    assert main([str(one) for one in command]) == 0
    assert f'cml.load("hf:anna/ages@{list(repository.commits)[1]}")' in capsys.readouterr().out
    assert repository.private
    assert not np.array_equal(cml.load("hf:anna/ages", device="cpu").embed(IMAGES), original)


def test_a_push_that_cannot_be_is_one_line(
    hub: StandIn, runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["export", "hub", runs[0], "--out"]
    assert "must be named user/name" in failure(capsys, *command, tmp_path / "a", "--push", "ages")
    assert "--push user/name" in failure(capsys, *command, tmp_path / "a", "--private")
    assert not (tmp_path / "a").exists()
    hub.repositories["anna/open"] = Repository()
    assert "is public: nothing" in failure(capsys, *command, tmp_path / "b", "--push", "anna/open", "--private")
    assert not hub.repositories["anna/open"].commits
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    said = failure(capsys, *command, tmp_path / "c", "--push", "anna/new")
    assert f"{tmp_path / 'c'} was written, but cannot be pushed to anna/new" in said
    assert "(log in: hf auth login)" in said
    assert "401" in said
    assert (tmp_path / "c" / "model.safetensors").exists()
    point_to(nowhere(), monkeypatch, tmp_path / "cache")
    assert "did not answer as expected" in failure(capsys, *command, tmp_path / "d", "--push", "anna/new")


@pytest.mark.slow
def test_commands_take_a_model_of_the_hub(runs: list[Path], tmp_path: Path) -> None:
    """As a user gives them, the hub in the environment; nothing else is asked of it, no telemetry either."""
    draw_images(tmp_path / "photos", 4)
    with stand_in() as hub:
        hub.repositories["anna/ages"] = Repository()
        commit = hub.repositories["anna/ages"].commit(files_of(runs[0]))
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        environment |= {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home")}
        script = (
            "import sys\nfrom cml.cli import main\n"
            "for line in sys.argv[1:]:\n    code = main(line.split())\n    assert code == 0, line\n"
        )
        lines = (
            "embed hf:anna/ages --images photos --out e --device cpu --json",
            f"index hf:anna/ages@{commit} photos --out i --device cpu",
            "search i photos/000.png --device cpu",
            "search i photos/000.png --run hf:anna/ages --device cpu",
            "export onnx hf:anna/ages --out onnx",
            "export captioning hf:anna/ages --images photos --out f --device cpu --json",
        )
        command = [sys.executable, "-c", script, *lines]
        ran = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200, check=False
        )
        assert ran.returncode == 0, ran.stderr
        assert f"hf:anna/ages is at {commit}" in ran.stderr
        assert not hub.refused
    expected = cml.load(runs[0], device="cpu").embed(sorted((tmp_path / "photos").iterdir()))
    np.testing.assert_allclose(np.load(tmp_path / "e" / "embeddings.npy"), expected, atol=1e-6)
