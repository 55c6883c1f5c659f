"""``cml prepare molecules``: fingerprints, Tanimoto distances and scaffolds against rdkit's own and against counts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml.data.check_dataset import check_dataset
from cml.data_prep.sources.molecules import Molecules, read_melting_points
from cml.distances import as_label_distance
from cml.errors import DataError, UserError

FILES = ("Phase Change/OpenNotebook Melting Points.tsv", "Identifiers/chemical identifiers pubchem large.tsv")
OTHERS = ("Identifiers/chemical identifiers pubchem small.tsv", "Identifiers/Inorganic db.tsv")
SMILES = [
    *("CCO", "CCCO", "CCCCO", "CC(C)O", "CCN", "CCCN", "CC(=O)O", "CCC(=O)O", "CC(=O)C", "CCCC(=O)C"),  # no rings
    *("c1ccccc1", "Cc1ccccc1", "CCc1ccccc1", "Oc1ccccc1", "Nc1ccccc1", "Clc1ccccc1", "OC(=O)c1ccccc1"),  # benzene
    *("C1CCCCC1", "CC1CCCCC1", "OC1CCCCC1", "c1ccncc1", "Cc1ccncc1", "c1ccc2ccccc2c1", "Cc1ccc2ccccc2c1"),
    *("C1CCCC1", "CC1CCCC1", "c1ccsc1", "Cc1ccsc1", "c1ccoc1", "Cc1ccoc1", "C1CC1", "CC1CC1", "C1CCC1", "CC1CCC1"),
]


def write(folder: Path, smiles: list[str] = SMILES, melting_points: str = "") -> Path:
    """The files of the package chemicals, of a few molecules with made-up CAS numbers."""
    for name in (*FILES, *OTHERS):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{number}-00-0\t{150 + 7.5 * number}" for number in range(len(smiles))]
    (folder / FILES[0]).write_text(melting_points or "CAS\tTm\n" + "\n".join(lines) + "\n")
    rows = [
        [f"{n}", f"{n}-00-0", "C", "1.0", text, "i", "k", "iupac", f"name {n}", "x"] for n, text in enumerate(smiles)
    ]
    (folder / FILES[1]).write_text("".join("\t".join(row) + "\n" for row in rows[:-2]))
    (folder / OTHERS[0]).write_text("".join("\t".join(row) + "\n" for row in rows[-4:]))
    (folder / OTHERS[1]).write_text("9\t999-00-0\tC\t1.0\tC\ti\tk\tmethane\tmethane\n")
    return folder


def lines_of(folder: Path) -> dict[str, dict[str, Any]]:
    texts = [path.read_text().splitlines() for path in sorted(folder.glob("*/metadata.jsonl"))]
    return {item["item_id"]: item for text in texts for item in map(json.loads, text)}


def vectors_of(dataset: Any) -> dict[str, np.ndarray[Any, Any]]:  # noqa: ANN401 - a prepared dataset
    splits = [dataset.split(role) for role in dataset.info.roles]
    return {
        name: vector
        for split in splits
        for name, vector in zip(split.item_ids, split.vectors.read(np.arange(len(split))), strict=True)
    }


def test_a_vector_counts_the_substructures_of_a_molecule(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    source = write(tmp_path / "raw")
    counts = vectors_of(cml.prepare("molecules", tmp_path / "counts", source=source, radius=0, size=2048))
    assert sorted(counts["0-00-0"][counts["0-00-0"] > 0]) == [1, 1, 1]  # ethanol: three kinds of atoms
    assert sorted(counts["10-00-0"][counts["10-00-0"] > 0]) == [6]  # benzene: six atoms of one kind
    bits = vectors_of(cml.prepare("molecules", tmp_path / "bits", source=source, fingerprint="bits", size=2048))
    wider = vectors_of(cml.prepare("molecules", tmp_path / "wider", source=source, size=2048))
    for name, vector in wider.items():
        np.testing.assert_array_equal(bits[name], vector > 0)


def test_distances_of_structures_are_those_of_tanimoto(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    from rdkit import Chem, DataStructs
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

    cml.prepare("molecules", tmp_path / "set", source=write(tmp_path / "raw"), label="structure")
    assert not list(check_dataset(tmp_path / "set"))
    items = lines_of(tmp_path / "set")
    info = json.loads((tmp_path / "set/dataset.json").read_text())
    distance = as_label_distance(info["details"]["label_distance"])
    labels = distance.encode([items[f"{n}-00-0"]["value"] for n in range(len(SMILES))])
    generator = GetMorganGenerator(radius=2)
    prints = [generator.GetSparseFingerprint(Chem.MolFromSmiles(text)) for text in SMILES]
    similarities = [DataStructs.BulkTanimotoSimilarity(one, prints) for one in prints]
    np.testing.assert_allclose(distance.pairwise(labels, labels), 1 - np.array(similarities), atol=1e-6)


def test_a_scaffold_is_in_training_or_in_the_test_set(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    dataset = cml.prepare("molecules", tmp_path / "set", source=write(tmp_path / "raw"))
    roles: dict[str, set[str]] = {}
    for item in lines_of(tmp_path / "set").values():
        assert item["melting_point"] == item["value"]
        if item["scaffold"]:
            roles.setdefault(item["scaffold"], set()).add(item["role"])
    assert len(roles) == 9
    assert all(len(found) == 1 for found in roles.values())
    assert roles["c1ccccc1"] == {"train"}  # 7 of 34 molecules: more than half of the test set
    assert abs(dataset.info.counts["query"] - 0.3 * len(SMILES)) <= 2
    assert lines_of(tmp_path / "set")["33-00-0"]["name"] == "name 33"  # from the second file
    by_hash = cml.prepare("molecules", tmp_path / "hash", source=tmp_path / "raw", split="hash", count=20)
    assert sum(by_hash.info.counts.values()) == 20


def test_molecules_are_trained_and_evaluated_by_structure(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    source = write(tmp_path / "raw")
    cml.prepare("molecules", tmp_path / "set", source=source, label="structure", split="hash", size=64)
    run = cml.train("value", data=tmp_path / "set", out=tmp_path / "run", steps=5, sampler="random(batch_size=12)")
    assert "ridge on label MDS" in run.evaluate().rows


def test_what_is_no_molecule_is_left_out_and_counted(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    source = write(tmp_path / "raw", ["no molecule", "", *SMILES])
    dataset = cml.prepare("molecules", tmp_path / "set", source=source)
    assert dataset.info.details["left_out"] == {"no SMILES": 1, "SMILES that rdkit refuses": 1}
    assert sum(dataset.info.counts.values()) == len(SMILES)
    with pytest.raises(UserError, match=r"The count should be at most 34, the molecules of .*raw. Got 35"):
        cml.prepare("molecules", tmp_path / "more", source=source, count=35)


def test_bad_files_are_named_with_their_line(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    source = write(tmp_path / "raw", melting_points="CAS\tTm\n0-00-0\t100\n1-00-0\tnan\n")
    with pytest.raises(
        DataError, match=r"Points.tsv:3: should be a CAS number and a melting point in kelvin. Got '1-0"
    ):
        cml.prepare("molecules", tmp_path / "set", source=source)
    (source / FILES[0]).write_text("CAS\tTm\n")
    with pytest.raises(DataError, match=r"Points.tsv holds no melting points"):
        cml.prepare("molecules", tmp_path / "set", source=source)
    write(source)
    (source / FILES[1]).write_text("1\t2\n")
    with pytest.raises(DataError, match=r"large.tsv:1: should have at least 9 columns. It has 2"):
        cml.prepare("molecules", tmp_path / "set", source=source)
    with pytest.raises(DataError, match=r"The input .*Points.tsv cannot be read"):
        cml.prepare("molecules", tmp_path / "set", source=tmp_path)


@pytest.mark.slow
def test_the_package_has_the_melting_points_of_known_molecules() -> None:
    pytest.importorskip("chemicals")
    melting_points = read_melting_points(Molecules()._files()[0])
    assert len(melting_points) == 11549
    assert melting_points["71-43-2"] == pytest.approx(278.6, abs=1)  # benzene
    pytest.importorskip("rdkit")
    molecules, left_out = Molecules()._read_molecules()
    assert len(molecules) == 11395 == len(melting_points) - sum(left_out.values())
    assert {one.cas: one.name for one in molecules}["71-43-2"] == "benzene"


@pytest.mark.parametrize("module", ["chemicals", "rdkit"])
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    source = None if module == "chemicals" else write(tmp_path / "raw")
    mend = r"needs the extra 'molecules': pip install .*\[molecules\]'"
    with pytest.raises(UserError, match=mend):
        Molecules(source).prepare(tmp_path / "set")
