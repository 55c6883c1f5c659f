"""The benchmark of continuous metric learning: a suite of sets, rules that the code keeps, results to be checked."""
