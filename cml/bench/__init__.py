"""The benchmark of continuous metric learning: a suite of sets, rules that the code keeps, results that can be checked.

``suite`` says what is measured, ``methods`` what is compared, ``sets`` hands out the parts of a set, ``heads`` trains
many heads at once, ``track`` keeps the rules, ``scores`` makes scores of ranks, ``result`` writes, reads and checks the
files, ``table`` compares them.
"""
