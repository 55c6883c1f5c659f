"""AgeDB: photographs of faces with the person's age, as the benchmark of imbalanced regression splits them."""

from dataclasses import dataclass

from cml.data_prep.listed_source import ListedSource


@dataclass(frozen=True)
class Agedb(ListedSource):
    """AgeDB: faces with ages, in the AgeDB-DIR split (imbalanced training ages, balanced test ages).

    Command: cml prepare agedb --source agedb --out DIR

    Input: a folder with agedb.csv (columns age, path, split; from github.com/YyzHarry/imbalanced-regression, folder
    agedb-dir/data) and the photographs in AgeDB/, from ibug.doc.ic.ac.uk/resources/agedb, whose makers give the
    archive's password on request. 12,208 photographs train; 2,140 test ones are queries that are searched among each
    other; those of "val" are left out.

    Licence: non-commercial research only, by agreement with AgeDB's makers.
    """

    published = "AgeDB, Moschoglou and others, CVPRW 2017; split AgeDB-DIR, Yang and others, ICML 2021"
    licence = "non-commercial research only, by agreement with its makers"
    label_unit = "years"
    lists = ("agedb.csv",)
    images = "AgeDB"
    columns = ("age", "path", "split")
    numbers = (("age", 0, 120),)  # years
    roles = ("split", {"train": "train", "val": "", "test": "query"})
