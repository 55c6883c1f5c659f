"""What ``cml.fit`` reads its items from: inputs that are all there, or a stream of which it reads the first ones."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from cml.data.images import stored_size
from cml.data.input_form import AcceptedInputs, FieldNames
from cml.data.input_sources import LabelledInputs, recognize_inputs
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LabelError
from cml.doors.learners import learner_class
from cml.errors import UserError
from cml.feature_store.store import FeatureStore
from cml.items import LabelledItems
from cml.streams.first_items import FirstItems
from cml.streams.item_reader import label_misfit
from cml.streams.labelled_stream import as_stream, is_stream
from cml.streams.learner import StreamDescent
from cml.training.config import TrainConfig
from cml.training.learner import Learner


class ListedSource:
    """Inputs that are all there, and may be read in any order."""

    resumes: ClassVar[bool] = True  # whether a run on them can be resumed

    def __init__(self, inputs: Any) -> None:  # noqa: ANN401 - the kinds that cml.fit lists
        self._inputs = inputs

    def check(self, **given: object) -> None:
        """Refuse arguments that do not fit the source; each is None or false where it is not given."""

    def recognize(
        self,
        inputs: Any,  # noqa: ANN401 - the inputs, perhaps in another order
        labels: Any,  # noqa: ANN401
        names: FieldNames,
        accepted: AcceptedInputs,
        config: TrainConfig,
    ) -> LabelledInputs:
        """Recognise the inputs and labels that training begins with."""
        return recognize_inputs(
            inputs.select() if isinstance(inputs, FeatureStore) else inputs, labels, names, accepted
        )

    def make_learner(self, config: TrainConfig, *parts: Any) -> Learner:  # noqa: ANN401 - see ``Learner``
        """Make the learner that the options name."""
        return learner_class(config)(config, *parts)

    def refuse_label(self, distance: LabelDistance, error: LabelError, mend: str) -> UserError:
        """Make the error of a label that does not fit the label distance."""
        return UserError(f"The 'labels' do not fit the label distance {distance.name!r}: {error} {mend}")

    def references(self, items: LabelledItems) -> LabelledItems | None:
        """The items of training that the model keeps to search among."""
        return items


class StreamSource(ListedSource):
    """A stream, of which training begins with the first items."""

    resumes = False
    _first: FirstItems

    def __init__(self, stream: Any) -> None:  # noqa: ANN401
        self._stream = as_stream(stream)
        super().__init__(self._stream)

    def check(self, **given: object) -> None:
        """Refuse what belongs to items that are all there."""
        reasons = {
            "labels": "A stream gives a label with each item: name its field, label='...', or give (input, label)",
            "groups": "'groups' divide items into training and validation, but no items of a stream are held out: "
            "give validation=(inputs, labels)",
            "sample_weight": "'sample_weight' needs all items: let the stream give an item more often",
            "resume": "A run on a stream cannot be resumed: train anew, or continue by start=cml.load(folder)",
        }
        for name, value in given.items():
            if value is not None and value is not False:
                raise UserError(f"{reasons[name]}. Got {name!r} with a stream.")

    def recognize(
        self,
        inputs: Any,  # noqa: ANN401
        labels: Any,  # noqa: ANN401
        names: FieldNames,
        accepted: AcceptedInputs,
        config: TrainConfig,
    ) -> LabelledInputs:
        """Read the first items."""
        size = stored_size(config.image_size, config.crop)
        self._first = FirstItems.read(self._stream, names, accepted, size, config.seed, config.decode)
        return self._first.labelled()

    def make_learner(self, config: TrainConfig, *parts: Any) -> Learner:  # noqa: ANN401
        """Make the learner of streams."""
        return replace(StreamDescent(config, *parts), first=self._first)

    def refuse_label(self, distance: LabelDistance, error: LabelError, mend: str) -> UserError:
        """Make the error of a label; the first items come before those of validation."""
        if error.position >= len(self._first.values):
            return super().refuse_label(distance, error, mend)
        return label_misfit(self._first.items[error.position].name, distance, error)

    def references(self, items: LabelledItems) -> None:
        """None: the items are gone."""


def open_source(inputs: Any) -> ListedSource:  # noqa: ANN401 - the kinds that cml.fit lists
    """Open what ``cml.fit`` is given as inputs."""
    make: Callable[[Any], ListedSource] = StreamSource if is_stream(inputs) else ListedSource
    return make(inputs)
