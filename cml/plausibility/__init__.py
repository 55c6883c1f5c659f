"""What all values of a dataset together say: rules for data that is legal, but probably not what was meant.

A rule never stops anything: it names what is suspicious, how often, where, and the mend. Each is a function in a file
of its name, and can be skipped by its name. Not for: faults of single items, which are errors where they are read.
"""
