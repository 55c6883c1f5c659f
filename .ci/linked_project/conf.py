"""A small project of somebody else, which links to the documentation of cml: CML_DOCS=FOLDER sphinx-build -n -W."""

import os

project = "linked"
extensions = ["sphinx.ext.intersphinx"]
intersphinx_mapping = {"cml": (os.environ["CML_DOCS"], None)}
