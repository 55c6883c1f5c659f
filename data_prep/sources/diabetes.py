"""Scikit-learn's diabetes patients: ten measurements, and how far the disease went within a year."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cml.data.prepared_writer import Item
from cml.data_prep.dataset_source import Content, DatasetSource
from cml.data_prep.folder_split import Labelled, assign_roles, describe_split
from cml.data_prep.provenance import record_provenance


@dataclass(frozen=True)
class Diabetes(DatasetSource):
    """442 diabetes patients of scikit-learn, as vectors: ten measurements; label: progression after a year.

    Command: cml prepare diabetes --out DIR

    Input: none; scikit-learn brings them. The columns are age, sex, body mass index, blood pressure and six blood
    serum measurements (s1 to s6), as they were measured.

    Licence: none stated.
    """

    split_seed: int = 0
    """Random seed of the split."""
    test_fraction: float = 0.3
    """Fraction of patients held out for testing; each is a query against all the others."""

    task = "value"
    label_unit = "units of progression"
    published = "scikit-learn's diabetes: Efron, Hastie, Johnstone and Tibshirani, Least Angle Regression, 2004"
    licence = "none stated"

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        return record_provenance(self, revision=1)

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        from sklearn.datasets import load_diabetes

        patients = load_diabetes(scaled=False)
        labels = patients.target.tolist()
        items = [
            Labelled(f"{row:03d}", f"{row:03d}", f"patient {row}", None, f"{row:03d}", label)
            for row, label in enumerate(labels)
        ]
        roles = assign_roles(items, self.test_fraction, 1.0, seed=self.split_seed, classes=False, grouped=False)
        vectors = patients.data.astype(np.float32)
        inputs = {"kind": "vectors", "size": vectors.shape[1], "columns": list(patients.feature_names)}
        return Content(
            [
                Item(item.item_id, roles[item.name], None, item.label, vector=vector)
                for item, vector in zip(items, vectors, strict=True)
            ],
            {"inputs": inputs, "label_columns": ["progression"], **describe_split(roles, classes=False)},
        )
