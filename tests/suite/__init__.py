"""How the tests are run: in two parts, side by side, and what fails once more by itself.

Two parts. A test that takes long and guards what few changes touch bears the marker `thorough`. `make test` runs all
others, `make test-thorough` those, `make test-all` both. `times.json` has the measured seconds of every file, by
which long files begin first and CONTRIBUTING lists both parts.

Side by side. Most tests wait for a broker, so there are more processes than processors. A file is run by one process,
in its order. All share one broker, and each test has topics of its own.

Counted. The results of a run have the processor seconds of each test beside those on the clock, and a run ends with the
dearest files: the processor is what a run lacks, and a test that waits costs nothing.

Once more. What failed is run again at the end, in one process, with nothing beside it. What fails twice is a failure.
What passes then is UNSTABLE: it is printed with its first failure and kept in `.build/tests/unstable.jsonl`. Up to
three such tests do not fail the run.
"""
