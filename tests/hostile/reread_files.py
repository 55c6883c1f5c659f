"""Every file that cml writes and reads again: damaged, and changed with checksums made to fit.

Run: python tests/hostile/reread_files.py [--mutants 400]

``FILES`` names each of them; ``test_reread_files.py`` fails if the code names a file that is not listed. A finding is
an exception that is no ``UserError``, or a result that differs from that of the sound files in a format whose checksums
should have told. A mutant that is signed again may give another result, but no traceback.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzz_parsers import changed_json
from safetensors.torch import load_file

import cml
from cml.checks.audit_list import read_scores
from cml.data.prepared import PreparedDataset
from cml.distances.euclidean import Euclidean
from cml.distances.jobs.run import write_matrix, write_neighbors
from cml.distances.jobs.verify import open_job
from cml.distances.precomputed import Precomputed
from cml.errors import UserError
from cml.feature_store.store import FeatureStore
from cml.searching.index_file import Row
from cml.storage.atomic import write_csv
from cml.storage.checksums import FILES as DIGESTS
from cml.storage.checksums import OWN, digest_files, sign
from cml.training.run_folder import TRAINING_ITEMS, save_training_items
from cml.training.saved_model import save_tensors

RECORDS = {"approximation.json", "job.json", "manifest.json"}  # which hold checksums of files beside them
ROWS = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
DISTANCE = Euclidean()
LABELS = DISTANCE.encode(ROWS.tolist())
QUIET: dict[str, Any] = {"quiet": True}


SEARCH_FILES = ("queries.npy", "corpus.npy", "queries.jsonl", "corpus.jsonl", "search.json", "test.tsv", "README.md")


@dataclass(frozen=True)
class Format:
    """A folder that is read again.

    Attributes:
        make: Writes it.
        read: Reads all that it says.
        unsigned: Its files without a checksum: people may edit them, or they only spare time.
        optional: Its files that may be absent: a model without one is not calibrated.
    """

    make: Callable[[Path], object]
    read: Callable[[Path], object]
    unsigned: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


def _make_model(folder: Path) -> None:
    model = cml.fit(ROWS, ROWS[:, 0], steps=2, dimension=3, sampler="random(batch_size=30)", **QUIET)
    new = np.random.default_rng(1).normal(size=(200, 5)).astype(np.float32)
    model.calibrate(new, new[:, 0])
    model.save(folder)


def _read_model(folder: Path) -> object:
    model = cml.load(folder, device="cpu")
    return model.embed(ROWS), repr(model.calibration)


def _read_job(folder: Path) -> object:
    open_job(DISTANCE, LABELS, folder)
    place = folder / "matrix.npy" if (folder / "matrix.npy").exists() else folder
    stored = Precomputed(str(place))
    rows = stored.encode(range(len(ROWS)))
    return stored.pairwise(rows, rows)


def _make_approximation(folder: Path) -> None:
    distance = cml.distances.as_label_distance(_apart, version="1")
    cml.distances.approximate(distance, list(ROWS), ROWS, "60%", k=4, out=folder, item_ids=list("ab" * 30), **QUIET)


def _apart(a: Any, b: Any) -> float:  # noqa: ANN401
    return float(np.abs(a - b).sum())


def _read_approximation(folder: Path) -> object:
    opened = cml.distances.Approximation.open(folder)
    known = opened.known
    lists = opened.neighbors
    arrays = (lists.ids, lists.distances, opened.embeddings, known.distances, known.columns, opened.model.embed(ROWS))
    return arrays, repr(opened.spent), opened.unit, opened.candidates(5)


def _make_embeddings(folder: Path) -> None:
    from cml.searching.embedding_folder import EMBEDDINGS, ITEMS, encode_item
    from cml.storage.json_file import with_format, write_json

    folder.mkdir()
    np.save(folder / EMBEDDINGS, ROWS)
    items = [{"item_id": f"i{row}", "value": row / 2, "columns": {"a": "b"}} for row in range(len(ROWS))]
    (folder / ITEMS).write_bytes(b"".join(map(encode_item, items)))
    counts = {"items": len(ROWS), "skipped": 0, "dimension": 5}
    texts = {"run": "", "images": "", "model": "m", "made_with": {"model": "m", "images": ""}}
    write_json(
        folder / "manifest.json", with_format({**texts, **counts, DIGESTS: digest_files(folder, (EMBEDDINGS, ITEMS))})
    )


def _read_embeddings(folder: Path) -> object:
    opened = cml.EmbeddingFolder.open(folder)
    return repr(opened.search(ROWS[:3], 4)), list(opened.items())


def _make_store(folder: Path) -> None:
    cml.features(ROWS, backbone=_double, out=folder, **QUIET)


def _double(rows: Any) -> Any:  # noqa: ANN401
    return np.asarray(rows, np.float32) * 2


def _read_store(folder: Path) -> object:
    store = FeatureStore.open(folder)
    repr(store)
    return store.select().read(np.arange(len(store))), store.item_ids, store.find(ROWS[:3])


def _make_index(folder: Path) -> None:
    index = cml.Index.create(folder, dimension=5, digest="m")
    labels: list[Any] = [f"l{row}" if row % 2 else row / 2 for row in range(60)]
    index.add(ROWS, ids=range(60), labels=labels, columns=[{"a": row} for row in range(60)])
    index.remove(["3"])


def _read_index(folder: Path) -> object:
    index = cml.Index.open(folder)
    found = index.search(ROWS[:4], k=5), index.search(ROWS[:1], k=2, where="a > 5")
    return repr(found), len(index), "4" in index, index.embeddings, index.sources()[0][:2]


def _make_dataset(folder: Path) -> None:
    source = folder.with_name("rows.csv")
    write_csv(source, ["a", "b", "y"], [[f"{value}" for value in row[:3].tolist()] for row in ROWS])
    cml.prepare("table", folder, source=source, features=("a", "b"), label_columns=("y",))


def _read_dataset(folder: Path) -> object:
    dataset = PreparedDataset.open(folder)
    return [(dataset.split(role).item_ids, dataset.split(role).labels) for role in dataset.info.roles]


def _make_run(folder: Path) -> None:
    """A run that stopped at its third step of six."""

    def stop(state: Any) -> None:  # noqa: ANN401
        if state.step == 3:
            raise InterruptedError

    with suppress(InterruptedError):
        _train(folder, callbacks=[cml.Callback(on_step=stop)])


def _train(folder: Path, **options: Any) -> cml.Model:  # noqa: ANN401
    little: dict[str, Any] = {
        "steps": 6,
        "checkpoint_every": 2,
        "dimension": 3,
        "sampler": "random(batch_size=20)",
        "workers": 0,
    }
    return cml.fit(ROWS, ROWS[:, 0], loss="log-ratio", out=folder, **little, **options, **QUIET)


def _read_run(folder: Path) -> object:
    """Continue it, in a copy."""
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(folder, copy := Path(place, "run"))
        model = _train(copy, resume=True)
        return model.embed(ROWS), repr(model.history.losses)


def _make_search(folder: Path) -> None:
    grades = cml.Grades(["q1", "q1", "q2", "q3"], ["d1", "d2", "d2", "d3"], [2, 0, 1.5, 3])
    queries, documents = ({f"{kind}{number}": ROWS[number] for number in (1, 2, 3)} for kind in "qd")
    cml.SearchFolder.write(folder, queries, documents, {"test": grades})


def _read_search(folder: Path) -> object:
    opened = cml.SearchFolder(folder)
    queries, documents, grades = opened.split("test")
    return repr((queries, documents, grades.queries, grades.documents, grades.gains, grades.unjudged))


def _make_audit(folder: Path) -> None:
    folder.mkdir()
    columns = ["rank", "item_id", "role", "label", "score"]
    write_csv(folder / "audit.csv", columns, [[f"{row}", f"=i{row}", "train", "x", f"{row / 7}"] for row in range(9)])


FORMATS = {
    "matrix": Format(lambda folder: write_matrix(DISTANCE, LABELS, folder, item_ids=list("ab" * 30)), _read_job),
    "lists": Format(lambda folder: write_neighbors(DISTANCE, LABELS, folder, 4), _read_job),
    "approximation": Format(_make_approximation, _read_approximation),
    "model": Format(_make_model, _read_model, ("config.json",), ("calibration.json", "training_items.npy")),
    "embeddings": Format(_make_embeddings, _read_embeddings, ("manifest.json",)),
    "store": Format(_make_store, _read_store, ("manifest.json",)),
    "index": Format(_make_index, _read_index),
    "dataset": Format(_make_dataset, _read_dataset, ("dataset.json", "metadata.jsonl", "vectors.npy")),
    "run": Format(_make_run, _read_run, ("config.json", "metrics.jsonl"), ("last.pt", "metrics.jsonl")),
    "search": Format(_make_search, _read_search, SEARCH_FILES),
    "audit": Format(_make_audit, lambda folder: read_scores(folder / "audit.csv"), ("audit.csv",)),
}

SERIES = "hostile_inputs.py and fuzz.py change it and run the commands that read it"
FILES = {
    **dict.fromkeys(("job.json", "items.json", "matrix.npy"), "matrix"),
    **dict.fromkeys(("ids.npy", "distances.npy"), "lists"),
    **dict.fromkeys(("approximation.json", "known.npz", "embeddings.npy"), "approximation"),
    **dict.fromkeys(("config.json", "model.safetensors", "calibration.json", "training_items.npy"), "model"),
    **dict.fromkeys(("manifest.json", "items.jsonl"), "store"),
    **dict.fromkeys(("dataset.json", "metadata.jsonl", "vectors.npy"), "dataset"),
    "index.sqlite": "index",
    "direct_url.json": "what pip writes of an installation, read as any JSON",
    "audit.csv": "audit",
    "originals.npy": "tests/training/test_original_files.py",
    "journal.jsonl": "test_damaged_work.py",
    "index.faiss": "tests/searching/test_index.py: its checksum is in index.sqlite, and without it search is exact",
    **dict.fromkeys(("evaluation.json", "comparison.json", "metrics.jsonl", "metadata.csv"), SERIES),
    "last.pt": "run",
    "loss.safetensors": "tests/runs/test_judgements.py: one of other shapes",
    **dict.fromkeys(("trials.json", "networks.json"), "what is damaged is computed again"),
    **dict.fromkeys(
        ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json", "router_config.json"),
        "sentence-transformers reads them; cml looks at the names of modules (test_text_backbones.py)",
    ),
    **dict.fromkeys(("queries.jsonl", "corpus.jsonl", "search.json"), "search"),
    "search_data.json": "tests/graded/test_graded_commands.py: a broken note, and a digest",
    **dict.fromkeys(("glove_6B_50d_emb.npy", "dataset_coco.json"), "somebody else's file; fuzz.py has its parser"),
    **dict.fromkeys(
        (
            "skipped.jsonl",
            "table.csv",
            "tuning.json",
            "reproduction.json",
            "comparison_grades.json",
            "_manifest.json",
            "evaluation_condensed.json",
        ),
        "not read again",
    ),
    **dict.fromkeys((".places.npy", ".config.json", "VECTORS.npy", "pairs.csv"), "temporary, or a word in a help text"),
}


def damaged(content: bytes, rng: random.Random) -> bytes | None:
    """Damage the content of a file; None for one that is gone."""
    how = rng.randrange(8)
    if not how:
        return None
    if how == 1:
        return content[: rng.randrange(len(content) + 1)]
    at = rng.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


def mutate(path: Path, rng: random.Random) -> None:
    """Change what a file says, in its own format."""
    if path.suffix == ".npy":
        np.save(path, _other_array(np.load(path), rng), allow_pickle=False)
    elif path.suffix == ".sqlite":
        _change_row(path, rng)
    elif path.suffix in (".json", ".jsonl"):
        path.write_bytes(changed_json(path.read_bytes(), 1 << 22, rng.randrange(1 << 30)))
    elif path.suffix == ".safetensors":
        tensors = load_file(path)
        name = rng.choice(sorted(tensors))
        save_tensors(path, {**tensors, name: _other_tensor(tensors[name], rng)})
    elif path.suffix == ".pt":
        state = torch.load(path, weights_only=True)
        _change_leaf(state, rng)
        torch.save(state, path)
    elif path.suffix == ".npz":
        with np.load(path) as archive:
            arrays = dict(archive)
        name = rng.choice(sorted(arrays))
        np.savez(path, **{**arrays, name: _other_array(arrays[name], rng)})
    else:
        content = damaged(path.read_bytes(), rng)
        path.unlink() if content is None else path.write_bytes(content)


def _other_array(array: Any, rng: random.Random) -> Any:  # noqa: ANN401
    other = np.array(array)
    values: list[Any] = [np.nan, np.inf, -1, 3e38, 0]
    if other.dtype.kind in "iu":
        limits = np.iinfo(other.dtype)
        values = [limits.min, -1 if limits.min else 1, 0, min(10**6, limits.max), min(2**31 - 1, limits.max)]
    if (how := rng.randrange(4)) or not other.size:
        row = np.atleast_1d(other)
        forms = [other[..., None], row[:0], row[:-1], other.astype(np.float64), other.astype(bool), other.T, -other]
        return np.asarray(rng.choice(forms)) if how == 1 and other.ndim else _filled(other, rng.choice(values), rng)
    return np.full_like(other, rng.choice(values))


def _other_tensor(tensor: torch.Tensor, rng: random.Random) -> torch.Tensor:
    return torch.from_numpy(np.array(_other_array(tensor.numpy(), rng), order="C"))


def _change_leaf(tree: Any, rng: random.Random) -> None:  # noqa: ANN401
    """Change one entry of a checkpoint, at any depth."""
    keys = sorted(tree, key=str) if isinstance(tree, dict) else range(len(tree))
    key = rng.choice(list(keys))
    value = tree[key]
    if isinstance(value, dict | list) and value and rng.randrange(8):
        _change_leaf(value, rng)
    elif isinstance(value, torch.Tensor) and rng.randrange(4):
        tree[key] = _other_tensor(value, rng)
    elif isinstance(tree, dict) and not rng.randrange(3):
        del tree[key]
    else:
        tree[key] = rng.choice([None, -1, 10**12, 0.5, "x", [], {}, torch.zeros(2)])


def _filled(array: Any, value: Any, rng: random.Random) -> Any:  # noqa: ANN401
    if array.size:
        array.reshape(-1)[rng.randrange(array.size)] = value
    return array


def _change_row(path: Path, rng: random.Random) -> None:
    columns = ("id", "label", "path", "columns", "added", "vector")
    odd: list[Any] = [
        7,
        -1.5,
        b"\x00",
        "x\x1b",
        "[",
        "[" * 100_000,
        "{}",
        '{"a": [1]}',
        '"x"',
        "",
        10**18,
        "null",
        b"\xff" * 20,
    ]
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE OR IGNORE items SET {rng.choice(columns)} = ? WHERE row = 5", [rng.choice(odd)])


def sign_again(folder: Path) -> None:
    """Make all checksums of a folder fit, first of what lies deepest: the records above hold digests of it."""
    for path in sorted(folder.rglob("*.json"), key=lambda path: (-len(path.parts), path.name in RECORDS)):
        try:
            record = json.loads(path.read_bytes())
        except ValueError:
            continue
        if not isinstance(record, dict):
            continue
        if isinstance(record.get(DIGESTS), dict):
            record[DIGESTS] = digest_files(path.parent, [name for name in record[DIGESTS] if ".." not in name])
        if isinstance(record.get("shards"), list):
            for shard in record["shards"]:
                if isinstance(shard, dict) and isinstance(shard.get("file"), str):
                    shard["sha256"] = next(iter(digest_files(path.parent, [Path(shard["file"]).name]).values()), "")
            record["items_sha256"] = next(iter(digest_files(path.parent, ["items.jsonl"]).values()), "")
        path.write_text(json.dumps(sign(record) if OWN in record else record))
    for path in folder.rglob(TRAINING_ITEMS):
        digests = np.load(path)
        if digests.dtype == np.uint64 and digests.ndim == 1:
            save_training_items(path.parent, digests[:-1])
    for path in folder.glob("index.sqlite"):
        with closing(sqlite3.connect(path)) as db, db:
            for number, *item in db.execute(
                "SELECT row, id, label, path, columns, added, vector FROM items"
            ).fetchall():
                if isinstance(item[-1], bytes):
                    db.execute("UPDATE items SET crc = ? WHERE row = ?", [Row(*item).crc, number])


def as_text(value: object) -> str:
    """A result as a text that equal results share."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{value.tobytes().hex()}"
    if isinstance(value, tuple | list):
        return f"[{','.join(map(as_text, value))}]"
    return repr(value)


def find_faults(name: str, mutants: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Damage and mutate each file of a format; for each mutant what came of it, and the finding or ""."""
    form, rng = FORMATS[name], random.Random(f"{name} {seed}")
    with tempfile.TemporaryDirectory() as place:
        sound, folder = Path(place, "sound"), Path(place, "changed")
        form.make(sound)
        expected = as_text(form.read(sound))
        paths = sorted(path.relative_to(sound) for path in sound.rglob("*") if path.is_file() and path.stat().st_size)
        for number in range(mutants):
            path, signs = paths[number % len(paths)], number // len(paths) % 2 == 1
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(sound, folder)
            if signs:
                mutate(folder / path, rng)
                sign_again(folder)
            elif (content := damaged((folder / path).read_bytes(), rng)) is None:
                (folder / path).unlink()
            else:
                (folder / path).write_bytes(content)
            kind, finding = "signed" if signs else "damaged", ""
            try:
                result = as_text(form.read(folder))
                told = "same" if result == expected else "other"
                is_gone = not (folder / path).exists()
                if told == "other" and not signs and path.name not in (*form.unsigned, *form.optional * is_gone):
                    finding = "another result in silence"
            except (UserError, FloatingPointError) as error:  # the latter of numbers near the largest in a checkpoint
                told = "refused"
                finding = "more than one line" if "\n" in str(error) or "\x1b" in str(error) else ""
            except Exception as error:
                told = finding = f"{type(error).__name__}: {str(error)[:100]}"
            yield f"{kind}, {told}", finding and f"{name}/{path}, mutant {number}, {kind}: {finding}"


def main() -> int:
    """Count what came of all mutants, and print the findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=400, help="of each format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--formats", nargs="*", default=list(FORMATS))
    options = parser.parse_args()
    findings = []
    for name in options.formats:
        outcomes = list(find_faults(name, options.mutants, options.seed))
        print(name, dict(Counter(told for told, _ in outcomes)), flush=True)
        findings += [finding for _, finding in outcomes if finding]
    print("\n".join(findings) or "no finding")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
