"""Other programs that do the same work, small and with their settings said, so that their cost can be measured.

`traffic` is the data that all get, `by_hand` the programs in Python, `kafka-streams` and `flink` those in Java, which
`maven` builds. `programs` starts each and holds its result against what is known of the data. `bench_peers` shows them
beside this project.
"""
