"""Tables as text: LaTeX that compiles whatever the cells hold."""

from __future__ import annotations

from cml.retrieval import text_table


def test_latex_escapes_what_would_be_a_command() -> None:
    table = text_table.latex([["method", "d@10"], [r"a_b & 50% \x {y} #1 $2 ~ ^ <", "0.25 ± 0.01*"]])
    head, line = table.splitlines()[2], table.splitlines()[4]
    assert head == r"method & d@10 \\"
    name = r"a\_b \& 50\% \textbackslash{}x \{y\} \#1 \$2 \textasciitilde{} \textasciicircum{} $<$"
    assert line == rf"{name} & 0.25 $\pm$ 0.01* \\"
    assert table.splitlines()[0] == r"\begin{tabular}{lr}"
