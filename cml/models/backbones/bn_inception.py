"""BN-Inception, the network of most published figures of metric learning (the extra ``bn-inception``).

Not for downloads: its published weights are read from a file that the user has.
"""

from torch import Tensor, nn

from cml.errors import UserError, require_extra
from cml.models.pooling import Pooling, check_pooling, pool_map

WEIGHTS = "bn_inception-52deb4733.pth"
"""Name of the file of published weights, as the package ``pretrainedmodels`` names it."""
SOURCE = f"http://data.lip6.fr/cadene/pretrainedmodels/{WEIGHTS}"


class BNInception(nn.Module):
    """The network of ``pretrainedmodels`` up to its pooled features: (B, 3, h, w) to (B, 1024).

    The published weights take pixels from 0 to 255 in the order blue, green, red, less the means 104, 117 and 128
    (``pretrained_settings`` of ``pretrainedmodels.models.bninception``). Like every backbone, this one is given red,
    green and blue; it changes the order itself.

    Reference:
        Ioffe, Szegedy: Batch Normalization, ICML 2015.
    """

    features = 1024
    mean = (128 / 255, 117 / 255, 104 / 255)  # red, green, blue
    std = (1 / 255, 1 / 255, 1 / 255)

    def __init__(
        self,
        network: nn.Module,  # ``pretrainedmodels.models.bninception.BNInception``
        pooling: Pooling = "mean",  # ``mean`` or ``max`` of the last map, or ``mean-max`` for their sum
    ) -> None:
        super().__init__()
        self.network = network
        self.pooling = pooling

    def forward(self, pixels: Tensor) -> Tensor:
        """Features (B, 1024) of normalised pixels (B, 3, h, w)."""
        return pool_map(self.feature_map(pixels), self.pooling)

    def feature_map(self, pixels: Tensor) -> Tensor:
        """The last map (B, 1024, h / 32, w / 32), the output of the stage "inception_5b"."""
        return self.network.features(pixels.flip(1))  # type: ignore[operator, no-any-return]


def bn_inception(weights: str = "imagenet", pooling: Pooling = "mean") -> nn.Module:
    """BN-Inception: 10.3 million parameters; published at 224 x 224 pixels, sides should be multiples of 32.

    Args:
        weights: ``none``, or the path of the file of published weights, ``bn_inception-52deb4733.pth``. It is never
            downloaded.
        pooling: ``mean`` or ``max`` of the last map, or ``mean-max`` for their sum, as in Proxy-Anchor's code.
    """
    if weights != "none":
        raise UserError(
            f"The published weights of BN-Inception are not downloaded: get {SOURCE} and give the path of the file as "
            "'weights', or set weights to 'none'."
        )
    check_pooling("bn-inception", pooling)
    with require_extra("bn-inception", "The backbone 'bn-inception'"):
        from pretrainedmodels.models.bninception import BNInception as PublishedNetwork
    network = PublishedNetwork()
    network.last_linear = nn.Identity()  # no loss would reach the classifier's parameters
    return BNInception(network, pooling)
