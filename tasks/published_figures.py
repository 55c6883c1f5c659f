"""The figures of "Proxy Anchor Loss for Deep Metric Learning" (Kim, Kim, Cho, Kwak, CVPR 2020), as printed: Recall@K.

Not for how a method is trained: ``proxy_anchor.py`` has that of the methods that cml can train. A network is left out
where the paper's table does not name it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

RECALL_KS: Mapping[str, tuple[int, ...]] = {
    "cub": (1, 2, 4, 8),
    "cars": (1, 2, 4, 8),
    "sop": (1, 10, 100, 1000),
    "in-shop": (1, 10, 20, 40),
}
"""Dataset to the K of its Recall@K."""

OURS = "Proxy-Anchor"
"""The paper's own method; the others are quoted there from other papers."""

# method | network | dimension | pixels a side | percentages of each data set, "-" where there is none
_CUB_AND_CARS = """
Clustering | BN-Inception | 64 | 224 | 48.2 61.4 71.8 81.9 | 58.1 70.6 80.3 87.8
Proxy-NCA | BN-Inception | 64 | 224 | 49.2 61.9 67.9 72.4 | 73.2 82.4 86.4 87.8
Smart Mining | GoogleNet | 64 | 224 | 49.8 62.3 74.1 83.3 | 64.7 76.2 84.2 90.2
Multi-similarity | BN-Inception | 64 | 224 | 57.4 69.8 80.0 87.8 | 77.3 85.3 90.5 94.2
SoftTriple | BN-Inception | 64 | 224 | 60.1 71.9 81.2 88.5 | 78.6 86.6 91.8 95.4
Proxy-Anchor | BN-Inception | 64 | 224 | 61.7 73.0 81.8 88.8 | 78.8 87.0 92.2 95.5
Margin | ResNet-50 | 128 | 224 | 63.6 74.4 83.1 90.0 | 79.6 86.5 91.9 95.1
HDC | GoogleNet | 384 | 224 | 53.6 65.7 77.0 85.6 | 73.7 83.2 89.5 93.8
A-BIER | GoogleNet | 512 | 224 | 57.5 68.7 78.3 86.2 | 82.0 89.0 93.2 96.1
ABE | GoogleNet | 512 | 224 | 60.6 71.5 79.8 87.4 | 85.2 90.5 94.0 96.1
HTL | BN-Inception | 512 | 224 | 57.1 68.8 78.7 86.5 | 81.4 88.0 92.7 95.7
RLL-H | BN-Inception | 512 | 224 | 57.4 69.7 79.2 86.9 | 74.0 83.6 90.1 94.1
Multi-similarity | BN-Inception | 512 | 224 | 65.7 77.0 86.3 91.2 | 84.1 90.4 94.0 96.5
SoftTriple | BN-Inception | 512 | 224 | 65.4 76.4 84.5 90.4 | 84.5 90.7 94.5 96.9
Proxy-Anchor | BN-Inception | 512 | 224 | 68.4 79.2 86.8 91.6 | 86.1 91.7 95.0 97.3
Contrastive + HORDE | BN-Inception | 512 | 256 | 66.3 76.7 84.7 90.6 | 83.9 90.3 94.1 96.3
Proxy-Anchor | BN-Inception | 512 | 256 | 71.1 80.4 87.4 92.5 | 88.3 93.1 95.7 97.5
Proxy-Anchor | GoogleNet | 512 | 224 | 63.8 74.4 83.6 90.4 | 84.3 90.4 94.1 96.7
Proxy-Anchor | ResNet-50 | 512 | 224 | 69.7 80.0 87.0 92.4 | 87.7 92.9 95.8 97.9
Proxy-Anchor | ResNet-101 | 512 | 224 | 70.8 81.0 88.1 93.0 | 87.9 93.0 96.1 97.9
Proxy-Anchor | BN-Inception | 512 | 324 | 74.0 82.9 88.9 93.2 | 91.1 94.9 96.9 98.3
Proxy-Anchor | BN-Inception | 512 | 448 | 77.3 85.6 91.1 94.2 | 92.9 96.1 97.7 98.7
"""
_SOP = """
Clustering | | 64 | 224 | 67.0 83.7 93.2 -
Proxy-NCA | | 64 | 224 | 73.7 - - -
Multi-similarity | | 64 | 224 | 74.1 87.8 94.7 98.2
SoftTriple | | 64 | 224 | 76.3 89.1 95.3 -
Proxy-Anchor | BN-Inception | 64 | 224 | 76.5 89.0 95.1 98.2
Margin | | 128 | 224 | 72.7 86.2 93.8 98.0
HDC | | 384 | 224 | 69.5 84.4 92.8 97.7
A-BIER | | 512 | 224 | 74.2 86.9 94.0 97.8
ABE | | 512 | 224 | 76.3 88.4 94.8 98.2
HTL | | 512 | 224 | 74.8 88.3 94.8 98.4
RLL-H | | 512 | 224 | 76.1 89.1 95.4 -
Multi-similarity | | 512 | 224 | 78.2 90.5 96.0 98.7
SoftTriple | | 512 | 224 | 78.3 90.3 95.9 -
Proxy-Anchor | BN-Inception | 512 | 224 | 79.1 90.8 96.2 98.7
Contrastive + HORDE | | 512 | 256 | 80.1 91.3 96.2 98.7
Proxy-Anchor | BN-Inception | 512 | 256 | 80.3 91.4 96.4 98.7
"""
_IN_SHOP = """
HDC | | 384 | 224 | 62.1 84.9 89.0 92.3
HTL | | 128 | 224 | 80.9 94.3 95.8 97.4
Multi-similarity | | 128 | 224 | 88.0 97.2 98.1 98.7
Proxy-Anchor | BN-Inception | 128 | 224 | 90.8 97.9 98.5 99.0
FashionNet | | 4096 | 224 | 53.0 73.0 76.0 79.0
A-BIER | | 512 | 224 | 83.1 95.1 96.9 97.8
ABE | | 512 | 224 | 87.3 96.7 97.9 98.5
Multi-similarity | | 512 | 224 | 89.7 97.9 98.5 99.1
Proxy-Anchor | BN-Inception | 512 | 224 | 91.5 98.1 98.8 99.1
Contrastive + HORDE | | 512 | 256 | 90.4 97.8 98.4 98.9
Proxy-Anchor | BN-Inception | 512 | 256 | 92.6 98.3 98.9 99.3
"""
_TABLES = ((("cub", "cars"), _CUB_AND_CARS), (("sop",), _SOP), (("in-shop",), _IN_SHOP))

BATCH_RECALL: Mapping[str, Mapping[int, float]] = {
    "cub": {30: 0.659, 60: 0.670, 90: 0.684, 120: 0.685, 150: 0.686, 180: 0.690},
    "cars": {30: 0.846, 60: 0.862, 90: 0.862, 120: 0.863, 150: 0.864, 180: 0.862},
    "sop": {30: 0.760, 60: 0.780, 90: 0.785, 120: 0.789, 150: 0.791, 300: 0.793, 600: 0.793},
    "in-shop": {30: 0.913, 60: 0.913, 90: 0.915, 120: 0.917, 150: 0.919, 300: 0.920, 600: 0.917},
}
"""Dataset to batch size to Recall@1 of Proxy-Anchor, BN-Inception, 512 dimensions."""


@dataclass(frozen=True)
class PublishedFigures:
    """The figures of a method on a data set."""

    method: str  # its name
    network: str  # its network; "" where the table does not name it
    dimension: int  # number of dimensions of the embedding
    side: int  # side of the images in pixels
    recall: Mapping[str, float]  # name of the metric to its share; metrics without a published figure are left out


def published_figures(dataset: str) -> Sequence[PublishedFigures]:  # dataset: ``cub``, ``cars``, ``sop`` or ``in-shop``
    """List the published figures of a data set, in the order of the paper's tables.

    Example:
        >>> published_figures("cub")[0].recall["recall@8"]
        0.819
    """
    datasets, table = next((datasets, table) for datasets, table in _TABLES if dataset in datasets)
    rows = []
    for line in table.strip().splitlines():
        method, network, dimension, side, *columns = (cell.strip() for cell in line.split("|"))
        percentages = zip(RECALL_KS[dataset], columns[datasets.index(dataset)].split(), strict=True)
        recall = {f"recall@{k}": round(float(text) / 100, 3) for k, text in percentages if text != "-"}
        rows.append(PublishedFigures(method, network, int(dimension), int(side), recall))
    return rows
