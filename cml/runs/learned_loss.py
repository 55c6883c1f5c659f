"""What the loss of a run has learned of the labels, in a sentence: such as the flip rate of judged triplets."""

from pathlib import Path

from cml import losses
from cml.errors import DataError, UserError
from cml.losses.loss import Loss
from cml.training.run_config import RunConfig
from cml.training.run_folder import LOSS


def describe_learned(folder: Path, config: RunConfig) -> str:
    """Say what the loss of a run has learned of the labels.

    Args:
        folder: The run folder.
        config: Its config.

    Returns:
        A sentence or two; "" where the loss learns nothing of them, is not registered here, or was not kept.

    Raises:
        DataError: The file of the loss is damaged, or that of another loss.
    """
    path = folder / LOSS
    if config.train.tune or not path.is_file():
        return ""
    try:
        loss = losses.get(config.train.loss)
    except UserError:  # of a plugin that is not loaded
        return ""
    if type(loss).describe_learned is Loss.describe_learned:
        return ""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        loss.load_state_dict(load_file(path), strict=False)  # the file holds no constants
    except (SafetensorError, OSError, RuntimeError) as error:
        raise DataError(f"{path} does not hold the parameters of {config.train.loss} ({error}). Train again.") from None
    return loss.describe_learned()
