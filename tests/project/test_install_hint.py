"""The command that an error names for a missing extra works from where cml was installed."""

import json
from importlib import metadata
from pathlib import Path

import pytest

from cml.errors import install_hint


@pytest.mark.parametrize(
    ("origin", "hint"),
    [
        (None, "pip install 'continuous-metric-learning[glove]'"),
        ({"url": "https://example.org/cml.whl", "archive_info": {}}, "pip install 'continuous-metric-learning[glove]'"),
        ({"url": "file:///a%20b/cml", "dir_info": {"editable": True}}, "pip install -e '/a b/cml[glove]'"),
        ({"url": "file:///a/cml", "dir_info": {}}, "pip install '/a/cml[glove]'"),
        ({"url": "file:///a/cml.whl", "archive_info": {}}, "pip install '/a/cml.whl[glove]'"),
        ({"url": Path.cwd().as_uri(), "dir_info": {"editable": True}}, "pip install -e '.[glove]'"),
    ],
    ids=["index", "address", "checkout", "copy of a checkout", "wheel", "here"],
)
def test_the_command_names_where_cml_came_from(
    origin: dict[str, object] | None, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = []
    for name, text in (("checkout.egg-info", None), ("installed.dist-info", origin)):  # as on the path of a checkout
        folder = tmp_path / name
        folder.mkdir()
        if text is not None:
            (folder / "direct_url.json").write_text(json.dumps(text))
        records.append(metadata.PathDistribution(folder))
    monkeypatch.setattr(metadata, "distributions", lambda **_: records)
    assert install_hint("glove") == hint
