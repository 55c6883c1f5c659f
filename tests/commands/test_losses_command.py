from __future__ import annotations

import json

import pytest
from torch import Tensor

from cml import cli, losses
from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.losses.loss_table import LossRow, describe_loss, loss_rows, markdown_table


def test_every_registered_loss_says_what_it_is() -> None:
    rows = loss_rows()
    assert sorted(row.name for row in rows) == losses.names()
    for row in rows:
        for text in (row.cost, row.source, row.when):
            assert text.strip() == text != "", row.name
            assert "\n" not in text, row.name
            assert "|" not in text, row.name
        assert row.when.endswith("."), row.name
        assert len(row.when) <= 100, row.name
    assert len({row.when for row in rows}) == len(rows)


def test_losses_over_label_distances_come_first_and_the_default_at_the_top() -> None:
    rows = loss_rows()
    kinds = [row.labels for row in rows]
    assert rows[0].name == "log-ratio"
    assert list(dict.fromkeys(kinds)) == ["label distances", "triplets", "vectors", "classes"]
    assert kinds == sorted(kinds, key=["label distances", "triplets", "vectors", "classes"].index)


def test_a_loss_that_does_not_say_what_it_is_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(LabelDistanceLoss):
        """It says nothing."""

        def forward(self, embeddings: Tensor, label_distances: Tensor) -> Tensor:
            return embeddings.sum()

    monkeypatch.setitem(losses.registry._entries, "silent", Silent)
    monkeypatch.setitem(losses.registry._origins, "silent", "mine.py")
    assert LossRow("silent", "label distances", "", "mine.py", "It says nothing.") in loss_rows()
    assert "Cost of a batch" not in describe_loss("silent")
    assert "When to use it" not in describe_loss("silent")  # its documentation does not say
    assert describe_loss("silent").count("It says nothing.") == 1
    assert "\nWhen to use it: " in describe_loss("cosent")
    monkeypatch.setattr(Silent, "search_space", {"margin": "0.1..1.0:log", "k": "5,10"})
    assert describe_loss("silent").endswith("\nVaried by cml bench: margin=0.1..1.0:log, k=5,10")


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["losses"]) == 0
    text = capsys.readouterr().out
    for row in loss_rows():
        assert row.name in text
        assert row.when in text
    assert cli.main(["losses", "--json"]) == 0
    assert [LossRow(**row) for row in json.loads(capsys.readouterr().out)] == loss_rows()
    assert cli.main(["losses", "--markdown"]) == 0
    assert capsys.readouterr().out.strip() == markdown_table(loss_rows())
    assert cli.main(["losses", "--markdown", "--json"]) == 2
    assert "Choose one of --markdown and --json" in capsys.readouterr().err


def test_one_loss_tells_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["losses", "log-ratio"]) == 0
    first, _, rest = capsys.readouterr().out.partition("\n")
    assert first.startswith("log-ratio(label_exponent=auto, ")
    assert "weights=rank" in first
    assert "label_exponent: p, above 0, or" in rest
    assert "\nLabels: label distances\nCost of a batch: O(A B)" in rest
    assert "\nSource: Kim et al., CVPR 2019\nWhen to use it: The default" in rest
    assert "Varied by" not in rest
    assert cli.main(["losses", "rkd-distance"]) == 0
    said = capsys.readouterr().out
    assert "`log-ratio`" in said
    assert "``" not in said
    assert cli.main(["losses", "log-ration"]) == 2
    assert "Did you mean 'log-ratio'?" in capsys.readouterr().err
    assert cli.main(["losses", "cosent", "binary"]) == 2
    assert "One loss at a time" in capsys.readouterr().err


def test_markdown_table_has_a_line_a_loss() -> None:
    lines = markdown_table([LossRow("a", "classes", "O(B)", "X, 2020", "Always.")]).splitlines()
    assert lines == [
        "| loss | labels | cost of a batch | source | when to use it |",
        "| --- | --- | --- | --- | --- |",
        "| `a` | classes | O(B) | X, 2020 | Always. |",
    ]
