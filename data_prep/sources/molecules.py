"""Molecules as vectors: Morgan fingerprints, with the melting point or the set of substructures as label."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from cml.array_types import Float32
from cml.data.prepared_writer import Item
from cml.data_prep.dataset_source import Content, DatasetSource
from cml.data_prep.group_split import split_by_group
from cml.data_prep.hash_split import split_by_hash
from cml.data_prep.provenance import record_provenance
from cml.data_prep.text_lines import read_lines
from cml.errors import DataError, UserError, require_extra

_MELTING_POINTS = "Phase Change/OpenNotebook Melting Points.tsv"  # CAS number, kelvin
_IDENTIFIERS = (  # PubChem number, CAS number, formula, molar mass, SMILES, InChI, its key, IUPAC name, usual name, ...
    "Identifiers/chemical identifiers pubchem large.tsv",
    "Identifiers/chemical identifiers pubchem small.tsv",
    "Identifiers/Inorganic db.tsv",
)
_CAS, _SMILES, _NAME = 1, 4, 8
_LABELS = {
    "melting-point": ("melting point", "K", "euclidean"),
    "structure": ("substructures", "1 - shared names", "jaccard"),
}


class Molecule(NamedTuple):
    """A molecule: its CAS number, usual name, SMILES, melting point in kelvin, and its object of rdkit."""

    cas: str
    name: str
    smiles: str
    melting_point: float
    mol: Any


@dataclass(frozen=True)
class Molecules(DatasetSource):
    """11,395 molecules as vectors: Morgan fingerprints; label: melting point, or structure by Tanimoto distance.

    Command: cml prepare molecules --out DIR

    Input: none with the extra 'molecules' (pip install chemicals rdkit): the melting points are those of the Open
    Notebook collection in the package chemicals, and rdkit computes the fingerprints. --source names another folder of
    the same files. Drawings of the molecules are stored for the explorer. The columns name, smiles, scaffold and
    melting_point are there whatever the label.

    melting-point: kelvin. structure: the numbers of the substructures in the unfolded fingerprint, compared by
    jaccard, which is the Tanimoto distance of sets.

    Split: by default, molecules with one ring system (Bemis-Murcko scaffold) stay together. Scaffolds of more than half
    as many molecules as the test set are for training, such as benzene; a molecule without rings is a group of its own.
    Every test molecule is a query that is searched among all other test molecules.

    Licence: MIT, as the package chemicals distributes the data.
    """

    HELP_GROUPS: ClassVar[Mapping[str, tuple[str, ...]]] = {  # the first is what --help shows without --help-all
        "basic": ("source", "label", "count", "split", "test_fraction"),
        "vectors": ("fingerprint", "radius", "size", "picture_size", "split_seed"),
    }

    source: Path | None = None
    """Folder with the files of the package chemicals; by default that of the installed package."""
    label: Literal["melting-point", "structure"] = "melting-point"
    """Label of a molecule."""
    count: int | None = None
    """Number of molecules, chosen by a hash of their CAS numbers; all by default."""
    fingerprint: Literal["counts", "bits"] = "counts"
    """Numbers of a vector: how often the molecule has each substructure, or 1 for each that it has."""
    radius: int = 2
    """Largest number of bonds from the centre of a substructure."""
    size: int = 1024
    """Length of a vector; substructures are folded into it by their hash."""
    split: Literal["scaffold", "hash"] = "scaffold"
    """Split: whole scaffolds, or a hash of each CAS number."""
    test_fraction: float = 0.3
    """Approximate fraction of molecules held out for testing."""
    split_seed: int = 0
    """Random seed that determines which scaffolds are held out."""
    picture_size: int = 160
    """Side of the drawing of a molecule in pixels."""

    task = "value"
    published = (
        "Bradley, Williams and Lang, Jean-Claude Bradley Open Melting Point Dataset, 2014, in the package chemicals"
    )
    licence = "MIT, as the package chemicals distributes the data"
    minimums: ClassVar[Mapping[str, float]] = {"count": 12, "radius": 0, "size": 16, "picture_size": 16}

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        return record_provenance(self, revision=1, files=self._files())

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        with require_extra("molecules", "Reading molecules"):
            import rdkit.Chem.rdFingerprintGenerator as generators
            from rdkit import rdBase
        with rdBase.BlockLogs():  # warnings on unusual molecules, which are left out or kept as they are
            molecules, left_out = self._read_molecules()
            scaffolds = {molecule.cas: read_scaffold(molecule) for molecule in molecules}
        held_out = self._held_out(scaffolds, molecules)
        folded = generators.GetMorganGenerator(radius=self.radius, fpSize=self.size)
        name, unit, distance = _LABELS[self.label]
        items = []
        for molecule in molecules:
            is_structure = self.label == "structure"
            items.append(
                Item(
                    molecule.cas,
                    "query" if molecule.cas in held_out else "train",
                    partial(draw, molecule, self.picture_size),
                    list_substructures(molecule, self.radius) if is_structure else molecule.melting_point,
                    None,
                    {
                        "name": molecule.name,
                        "smiles": molecule.smiles,
                        "scaffold": scaffolds[molecule.cas],
                        "melting_point": molecule.melting_point,
                    },
                    vector=self._vector(folded, molecule),
                )
            )
        details = {
            "gallery": "queries",
            "inputs": {"kind": "vectors", "size": self.size},
            "label_columns": [name],
            "label_distance": distance,
            "left_out": left_out,
        }
        return Content(items, details, {"label_unit": unit})

    def _files(self) -> list[Path]:
        folder = self.source
        if folder is None:
            with require_extra("molecules", "The package of melting points chemicals"):
                folder = Path(next(iter(import_module("chemicals").__path__)))
        return [folder / name for name in (_MELTING_POINTS, *_IDENTIFIERS)]

    def _read_molecules(self) -> tuple[list[Molecule], dict[str, int]]:
        """The molecules in the order of their CAS numbers, and how many were left out for which reason."""
        from rdkit import Chem

        melting_points = read_melting_points(self._files()[0])
        identifiers = read_identifiers(self._files()[1:], melting_points)
        molecules = []
        for cas, (name, smiles) in sorted(identifiers.items(), key=lambda entry: _hash(entry[0])):
            mol = Chem.MolFromSmiles(smiles)
            if mol is None or not mol.GetNumAtoms():
                continue
            molecules.append(Molecule(cas, name, smiles, melting_points[cas], mol))
        left_out = {
            "no SMILES": len(melting_points) - len(identifiers),
            "SMILES that rdkit refuses": len(identifiers) - len(molecules),
        }
        if len(molecules) < (self.count or 1):
            where = self._files()[0].parent.parent
            raise UserError(
                f"The count should be at most {len(molecules)}, the molecules of {where}. Got {self.count}."
            )
        return sorted(molecules[: self.count]), left_out

    def _held_out(self, scaffolds: Mapping[str, str], molecules: list[Molecule]) -> set[str]:
        """The CAS numbers of the test molecules."""
        if self.split == "hash":
            return {cas for cas in scaffolds if split_by_hash(cas, self.test_fraction, 1.0) == "query"}
        wanted = self.test_fraction * len(molecules)
        sizes = Counter(scaffold for scaffold in scaffolds.values() if scaffold)
        groups = {
            cas: scaffold or f"no rings: {cas}"
            for cas, scaffold in scaffolds.items()
            if sizes[scaffold] <= max(1, wanted / 2)
        }
        if not groups:
            raise UserError("No scaffold is small enough to be held out: take more molecules, or --split hash.")
        return split_by_group(groups, min(1.0, wanted / len(groups)), seed=self.split_seed, salt="")

    def _vector(self, generator: Any, molecule: Molecule) -> Float32:  # noqa: ANN401 - of rdkit
        """The folded fingerprint (size,) of a molecule."""
        if self.fingerprint == "bits":
            numbers = generator.GetFingerprintAsNumPy(molecule.mol)
        else:
            numbers = generator.GetCountFingerprintAsNumPy(molecule.mol)
        return np.asarray(numbers, np.float32)


def read_melting_points(path: Path) -> dict[str, float]:
    """Read the table of melting points."""
    melting_points = {}
    for where, line in read_lines(path)[1:]:
        cas, _, text = line.partition("\t")
        try:
            kelvin = float(text)
        except ValueError:
            kelvin = np.nan
        if not 0 < kelvin < np.inf:
            raise DataError(f"{where}: should be a CAS number and a melting point in kelvin. Got {line!r:.80} instead.")
        melting_points[cas] = kelvin
    if not melting_points:
        raise DataError(f"{path} holds no melting points.")
    return melting_points


def read_identifiers(paths: list[Path], wanted: Mapping[str, float]) -> dict[str, tuple[str, str]]:
    """Read names and SMILES of molecules."""
    identifiers: dict[str, tuple[str, str]] = {}
    for path in paths:
        for where, line in read_lines(path):
            columns = line.split("\t", _NAME + 1)
            if len(columns) <= _NAME:
                raise DataError(f"{where}: should have at least {_NAME + 1} columns. It has {len(columns)}.")
            cas = columns[_CAS]
            if cas in wanted and cas not in identifiers and columns[_SMILES]:
                identifiers[cas] = columns[_NAME] or cas, columns[_SMILES]
    return identifiers


def read_scaffold(molecule: Molecule) -> str:
    """The rings of a molecule and what links them, as a SMILES (Bemis and Murcko, J. Med. Chem. 1996); "" for none."""
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    return str(MurckoScaffoldSmiles(mol=molecule.mol))


def list_substructures(molecule: Molecule, radius: int) -> list[str]:
    """The numbers of the substructures that a molecule has, from its unfolded Morgan fingerprint."""
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

    bits = GetMorganGenerator(radius=radius).GetSparseFingerprint(molecule.mol).GetOnBits()
    return sorted(str(bit % 2**32) for bit in bits)  # rdkit returns signed numbers


def draw(molecule: Molecule, side: int) -> bytes:
    """Draw a molecule as a square PNG of ``side`` pixels."""
    from rdkit.Chem.Draw import rdMolDraw2D

    drawing = rdMolDraw2D.MolDraw2DCairo(side, side)
    drawing.drawOptions().includeMetadata = False  # the molecule once more, in a binary form of rdkit
    rdMolDraw2D.PrepareAndDrawMolecule(drawing, molecule.mol)
    drawing.FinishDrawing()
    return bytes(drawing.GetDrawingText())


def _hash(cas: str) -> bytes:
    return hashlib.sha256(cas.encode()).digest()
