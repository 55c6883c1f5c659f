from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from export_runs import draw_images, make_run
from pyarrow import parquet

from cml.cli import main
from cml.errors import install_hint
from cml.searching.embedding_folder import DIGESTED, EmbeddingFolder
from cml.searching.parquet_file import write_parquet
from cml.storage.regular_file import digest_file


def embedded(folder: Path, labels: list[Any]) -> EmbeddingFolder:
    """Embeddings of items with these labels; None for an item without one."""
    folder.mkdir()
    values = np.random.default_rng(0).normal(size=(len(labels), 3)).astype(np.float32)
    np.save(folder / "embeddings.npy", values)
    entries: list[dict[str, Any]] = [{"item_id": f"{n}", "file_name": f"{n}.png"} for n in range(len(labels))]
    for entry, label in zip(entries, labels, strict=True):
        entry |= {"role": "query"} | ({} if label is None else {"age": label})
    entries[0]["item_id"] = "a\udcff\n\u00e9"
    (folder / "items.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    counts = {"items": len(labels), "skipped": 0, "dimension": 3}
    origin = {"model": "m", "images": "i"}
    digests = {name: digest_file(folder / name) for name in DIGESTED}
    manifest = {
        "format": 1,
        "run": "",
        "images": "photos",
        **counts,
        "model": "m",
        "made_with": origin,
        "sha256": digests,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return EmbeddingFolder.open(folder)


@pytest.mark.parametrize(
    ("labels", "kind", "expected"),
    [
        ([1, None, -3], pa.int64(), [1, None, -3]),
        ([1, 2.5, None], pa.float64(), [1.0, 2.5, None]),
        ([1, 1 << 70], pa.float64(), [1.0, float(1 << 70)]),
        (["cat", None, "dog"], pa.string(), ["cat", None, "dog"]),
        ([None, None], pa.string(), [None, None]),
        ([7] * 5000, pa.int64(), [7] * 5000),
    ],
)
def test_ids_vectors_and_labels_are_read_back(
    labels: list[Any], kind: pa.DataType, expected: list[Any], tmp_path: Path
) -> None:
    made = embedded(tmp_path / "e", labels)
    write_parquet(made)
    table = parquet.read_table(tmp_path / "e" / "embeddings.parquet")
    assert table.schema == pa.schema({"id": pa.string(), "vector": pa.list_(pa.float32(), 3), "label": kind})
    assert table["id"].to_pylist() == ["a\\udcff\n\u00e9", *map(str, range(1, len(labels)))]
    np.testing.assert_array_equal(np.array(table["vector"].to_pylist(), np.float32), made.embeddings)
    assert table["label"].to_pylist() == expected


def test_the_command_writes_it_again_when_asked_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draw_images(tmp_path / "photos", 5)
    rows = [f"{n:03}.png,{n / 2},{('train', 'query', 'gallery')[n % 3]}" for n in range(5)]
    (tmp_path / "labels.csv").write_text("\n".join(["file_name,age,split", *rows]) + "\n")
    data, out = tmp_path / "data", tmp_path / "e"
    prepare = ["prepare", "folder", "--images", tmp_path / "photos", "--labels", tmp_path / "labels.csv"]
    prepare += ["--label-columns", "age", "--split-column", "split", "--out", data]
    embed = ["embed", make_run(tmp_path / "run"), "--images", data, "--out", out, "--device", "cpu"]
    assert main([str(one) for one in prepare]) == 0
    assert main([str(one) for one in embed]) == 0
    assert not (out / "embeddings.parquet").exists()
    assert main([str(one) for one in [*embed, "--parquet"]]) == 0
    frame = pd.read_parquet(out / "embeddings.parquet")
    assert list(frame) == ["id", "vector", "label"]
    items = [json.loads(line) for line in (out / "items.jsonl").read_text().splitlines()]
    assert frame["id"].tolist() == [item["item_id"] for item in items]
    assert sorted(frame["label"]) == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert frame["label"].tolist() == [list(item.values())[-1] for item in items]
    np.testing.assert_array_equal(np.stack(frame["vector"].tolist()), np.load(out / "embeddings.npy"))

    monkeypatch.delitem(sys.modules, "cml.searching.parquet_file")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    embed[embed.index(out)] = tmp_path / "another"
    capsys.readouterr()
    assert main([str(one) for one in [*embed, "--parquet"]]) == 2
    assert f"Parquet needs the extra 'parquet': {install_hint('parquet')}" in capsys.readouterr().err
    assert not (tmp_path / "another").exists()
