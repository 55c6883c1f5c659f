"""``cml.fit((queries, documents), grades)``: both sides become the items of one training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from cml.array_types import Int64
from cml.console.messages import say
from cml.data.image_sources import as_array, as_list, number_groups
from cml.data.images import stored_size
from cml.data.input_form import AcceptedInputs, FieldNames, Inputs
from cml.data.input_sources import recognize_inputs
from cml.data.texts import are_texts
from cml.data.vectors import Vectors
from cml.distances.labels import short
from cml.doors.model import Model
from cml.doors.search_model import SearchModel
from cml.doors.training_run import Interrupted
from cml.doors.validation_items import refuse_with_validation
from cml.errors import UserError
from cml.export.sentence_folder import QUERIES
from cml.graded.distance import GradedDistance
from cml.graded.grades import AlignedGrades, Grades
from cml.graded.held_out import hold_last_out, hold_queries_out
from cml.graded.named_side import split_names
from cml.graded.search_options import two_network_options
from cml.graded.towers import SideReader, Towers
from cml.items.label_inputs import open_at
from cml.items.names import align_by_name
from cml.models import CUSTOM
from cml.models.backbone import count_channels, read_by_itself
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.training.config import TrainConfig, with_options
from cml.training.train_options import complete_options
from cml.training.vector_options import TEXT_BACKBONE

_DEFAULTS = vars(TrainConfig())


def fit_grades(
    fit: Callable[..., Model],  # cml.fit itself
    inputs: Any,  # noqa: ANN401 - (queries, documents)
    grades: Grades,
    config: TrainConfig | None,
    *,
    backbone: Any = None,  # noqa: ANN401 - as cml.fit takes it, or one for each side
    collate: Any = None,  # noqa: ANN401 - likewise
    groups: Any = None,  # noqa: ANN401 - a name or number for each query
    validation: Any = None,  # noqa: ANN401 - (queries, grades) for the same documents
    refused: Mapping[str, Any],  # arguments of cml.fit that grades leave no room for
    options: Mapping[str, Any],  # all others
) -> SearchModel:
    """Train a model of queries and documents."""
    given = next((name for name, value in refused.items() if value is not None), None)
    if given is not None:
        raise UserError(f"Graded search takes no {given!r}: grades say how near queries and documents are.")
    if not isinstance(inputs, tuple | list) or len(inputs) != 2:
        raise UserError("Grades are of two sides: give cml.fit((queries, documents), grades).")
    aligned = grades.align(*inputs)
    aligned.grades.check_queries()
    base = TrainConfig() if config is None else config
    chosen = {name: value for name, value in options.items() if value is not None}
    numbers = None if groups is None else _number_groups(inputs[0], groups, len(aligned.grades.queries))
    named, given_queries = with_options(base, _named(chosen)), 0
    if validation is not None:
        refuse_with_validation(named, groups=groups)
        aligned, given_queries = _add_validation(aligned, validation, inputs)
    distance = GradedDistance(aligned.grades)
    trained, validating = _split(aligned.grades, numbers, named, given_queries, quiet=options["quiet"])
    if not are_two(backbone):
        joined = _join(aligned.queries, aligned.documents)
        if backbone is None and base.backbone == _DEFAULTS["backbone"] and are_texts(joined):
            backbone, chosen = TEXT_BACKBONE, {"freeze_backbone": "tune" not in chosen, **chosen}
        held_out = None if validating is None else (_take(joined, validating), validating)
        joined = joined if validating is None else _take(joined, trained)
        common: dict[str, Any] = {"label_distance": distance, "backbone": backbone, "collate": collate}
        try:
            model = fit(joined, trained, config, validation=held_out, **common, **chosen)
        except Interrupted as stop:
            stop.model = SearchModel.of(stop.model)
            raise
        return SearchModel.of(model)
    out = None if options["out"] is None else Path(options["out"])
    if options["resume"] and out is not None and (out / QUERIES).is_dir():
        raise UserError(f"{out} holds a finished run of two networks: open it by cml.load, or choose another folder.")
    sides = _Sides.open(aligned, backbone, collate, base, options)
    suited = two_network_options(chosen, have_texts=sides.have_texts)
    chosen = {**{name: value for name, value in suited.items() if getattr(base, name) == _DEFAULTS[name]}, **chosen}
    held_out = None if validating is None else (validating, validating)
    common = {"label_distance": distance, "backbone": sides.towers, "collate": sides.reader}
    try:
        model = fit(trained, trained, config, validation=held_out, **common, **chosen)
    except Interrupted as stop:
        stop.model = sides.split(stop.model)
        raise
    found = sides.split(model)
    if out is not None:
        found.save_both(out)
    return found


def _add_validation(
    aligned: AlignedGrades,
    validation: Any,  # noqa: ANN401 - (queries, grades)
    inputs: Any,  # noqa: ANN401 - (queries, documents), as they were given
) -> tuple[AlignedGrades, int]:  # with the validating queries as the last ones, and how many they are
    """Add the queries that validate, whose documents are those of the training."""
    if not (isinstance(validation, tuple | list) and len(validation) == 2 and isinstance(validation[1], Grades)):
        raise UserError("'validation' of graded search takes (queries, grades), for the documents of the training.")
    try:
        queries, _, grades = validation[1].align(validation[0], inputs[1])
        grades.check_queries()
    except UserError as error:
        raise UserError(f"'validation' cannot be used: {error}") from None
    ours, theirs = (split_names(side)[0] or () for side in (inputs[0], validation[0]))
    shared = sorted({*ours} & {*theirs})
    if shared:
        raise UserError(
            f"'validation' has queries of the training, such as {short(shared[0])}: leave these out of one of them."
        )
    arrays = as_array(aligned.queries), as_array(queries)
    if arrays[0] is not None and arrays[1] is not None and arrays[0].shape[1:] != arrays[1].shape[1:]:
        wanted, got = (array.shape[1:] for array in arrays if array is not None)
        raise UserError(f"'validation' must have queries of the training's shape, {wanted}. Got {got} instead.")
    joined = _join(aligned.queries, queries)
    return AlignedGrades(joined, aligned.documents, aligned.grades.stack(grades)), len(grades.queries)


def _split(
    grades: Grades,
    groups: Int64 | None,
    config: TrainConfig,
    given_queries: int,  # how many of the last queries were given to validate
    *,
    quiet: bool,
) -> tuple[list[int], list[int] | None]:
    """The numbers of items that are trained on, and of those that validate, if any do."""
    if given_queries:
        held_out = hold_last_out(grades, given_queries, config.seed)
    elif config.evaluate_every:
        held_out = hold_queries_out(grades, groups, config)
    else:
        return list(range(len(grades.queries) + len(grades.documents))), None
    if not quiet:
        say(held_out.describe(grades))
    return held_out.trained.tolist(), held_out.validating.tolist()


def _number_groups(queries: Any, groups: Any, count: int) -> Int64:  # noqa: ANN401 - inputs, and names in their order
    """Number the groups of the queries."""
    if isinstance(queries, Mapping) and isinstance(groups, Mapping):
        missing = next((name for name in queries if name not in groups), None)
        if missing is not None:
            raise UserError(f"'groups' has no group of the query {short(missing)}: give one for each query.")
        return number_groups([groups[name] for name in queries], count)
    return number_groups(align_by_name(queries, groups, "groups"), count)


def _take(inputs: Any, items: list[int]) -> Any:  # noqa: ANN401 - an array or a list
    """Some of the inputs."""
    return inputs[items] if isinstance(inputs, np.ndarray) else [inputs[item] for item in items]


def _named(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a config has, of those that ``cml.fit`` takes."""
    return {
        name: options[name] for name in ("evaluate_every", "validation_fraction", "seed", "tune") if name in options
    }


def are_two(backbone: object) -> bool:
    """Whether a backbone is two, one for each side; a pair of a module and its tokenizer is one."""
    if not isinstance(backbone, tuple | list):
        return False
    first, second = [*backbone, None, None][:2]
    is_tokenizer = not isinstance(second, nn.Module) and hasattr(second, "vocab_size")
    return not (isinstance(first, nn.Module) and is_tokenizer)


def _join(queries: Any, documents: Any) -> Any:  # noqa: ANN401 - inputs of one kind
    """Join the inputs of both sides, queries first."""
    arrays = as_array(queries), as_array(documents)
    if arrays[0] is not None and arrays[1] is not None:
        if arrays[0].shape[1:] != arrays[1].shape[1:]:
            raise UserError(
                f"One network takes queries and documents of one shape. Got {arrays[0].shape[1:]} and "
                f"{arrays[1].shape[1:]} instead; give a network for each, backbone=('none', 'none') for vectors."
            )
        return np.concatenate([arrays[0], arrays[1]])
    return [*as_list(queries), *as_list(documents)]


@dataclass(frozen=True)
class _Sides:
    """Both sides, each opened for a network of its own."""

    towers: Towers
    reader: SideReader

    @property
    def have_texts(self) -> bool:
        """Whether a side is of texts."""
        return "texts" in (self.towers.queries.config.inputs.kind, self.towers.documents.config.inputs.kind)

    @classmethod
    def open(
        cls,
        aligned: AlignedGrades,
        backbones: Sequence[Any],
        collate: Any,  # noqa: ANN401 - a function, one for each side, or None
        base: TrainConfig,
        options: Mapping[str, Any],
    ) -> _Sides:
        """Recognise the inputs of both sides, and make their networks."""
        if len(backbones) != 2:
            raise UserError(f"'backbone' takes one network, or two: (queries, documents). Got {len(backbones)}.")
        if base.freeze_backbone or options.get("freeze_backbone"):
            raise UserError(
                "A frozen network for each side is not trained together: compute the features of both sides, and give "
                "these as vectors with backbone=('none', 'none')."
            )
        from cml.models.backbones.sentence_transformers import wrap_foreign  # of texts, which few give

        collates = collate if isinstance(collate, tuple | list) else (collate, collate)
        names = ("weights", "dimension", "image_size", "crop", "seed", "missing", "cache_bytes", "decode")
        sides: list[tuple[Inputs, EmbeddingModel]] = []
        for inputs, backbone, join in zip((aligned.queries, aligned.documents), backbones, collates, strict=True):
            own = None if isinstance(backbone, str) else wrap_foreign(backbone)
            is_own = own is not None
            config = with_options(base, {name: options[name] for name in names if name in options})
            accepted = AcceptedInputs(
                kind=read_by_itself(backbone if own is None else own),
                missing=config.missing,
                own_backbone=is_own,
                channels=count_channels(backbone if own is None else own),
                collate=join,
            )
            numbers = list(range(len(inputs)))
            known = recognize_inputs(inputs, numbers, FieldNames(), accepted)
            size = stored_size(config.image_size, config.crop)
            open_inputs = open_at(
                size, channels=accepted.channels, cache_bytes=config.cache_bytes, decode=config.decode
            )
            opened = open_inputs(known.inputs)
            weights = {} if "weights" in options else {"weights": "none"} if is_own else {}
            config = complete_options(config, weights, opened.form)
            shape = ModelConfig(
                getattr(own, "saved_as", CUSTOM) if is_own else backbone,
                config.weights,
                config.dimension,
                normalize=False,  # the outer model does, as the loss asks
                image_size=config.image_size,
                crop=config.crop,
                inputs=opened.form,
            )
            example = opened.read(np.arange(min(2, len(opened)))) if opened.form.kind == "items" else None
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(config.seed + len(sides))
                tower = EmbeddingModel(shape, backbone=own, example=example)
            tower.set_collate(join)
            if isinstance(opened, Vectors) and opened.form.kind == "vectors":
                tower.fit_standardization(opened)
            sides.append((opened, tower))
        (queries, query_tower), (documents, document_tower) = sides
        return cls(
            Towers(query_tower, document_tower), SideReader(queries, documents, document_tower.config.image_size)
        )

    def split(self, model: Model) -> SearchModel:
        """Take the trained model apart."""
        head = model.network.head
        assert isinstance(head, torch.nn.Linear)
        networks = self.towers.split(head, normalize=model.config.normalize)
        sides = [
            Model(network, replace(model.run_config, model=network.config), model.label_distance, history=model.history)
            for network in networks
        ]
        return SearchModel.of(sides[1], sides[0])
