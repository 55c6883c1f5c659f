"""The label distance of a run that is resumed: the one that it began with, though defaults may have changed since."""

from pathlib import Path

from cml.training.run_config import RunConfig


def read_kept_label_distance(label_distance: str, task: str, out: Path | str | None, *, resume: bool) -> str | None:
    """Read the label distance that a resumed run began with.

    A run keeps all settings of its label distance, also those that were defaults. A later version of cml may have other
    defaults, with which the rest of the run would learn something else.

    Args:
        label_distance: The option ``label_distance`` of the call that resumes it.
        task: Name of the task.
        out: Folder of the run.
        resume: Whether the run is resumed.

    Returns:
        The label distance with all settings; None where no run is resumed, or one that began with another option or
        task, which is refused later.

    Raises:
        DataError: The run's config is damaged.
    """
    if not resume or out is None or not (Path(out) / "config.json").is_file():
        return None
    saved = RunConfig.load(Path(out))
    is_same = saved.task == task and saved.train.label_distance == label_distance
    return saved.label_distance if is_same else None
