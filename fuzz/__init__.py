"""Fuzzing of everything that reads bytes somebody else wrote: `python -m fuzz TARGET --inputs 1000000 --seed 1`.

In: the seed corpus (`fuzz/corpus/TARGET/`), a seed. Out: a count of inputs, and a file for each one that should not
have been. A finding is a crash, a hang, an exception that is not documented, or a wrong accept.
Nothing outside this package and its tests may import it.

The mutators are our own, structured by format, and not guided by coverage. Coverage guidance (atheris, libFuzzer)
follows the branches of Python's bytecode; what is to be tested here is machine code that numba compiled, which shows
it none, and records behind checksums, which mutation by bytes does not get past. Its process model does not help
either: an over-read of a kernel is no fault while the bytes behind the input happen to be mapped. So inputs lie at the
edge of memory that may not be touched (`guard`), what they decode to is compared with slow decoders that are written
from the documented layouts, and checksums are made right again after the damage. A batch that fails is narrowed down to
one input.

| module         | does                                                                  |
|----------------|-----------------------------------------------------------------------|
| `guard`        | memory between two inaccessible pages                                 |
| `mutate`       | damage to bytes, to numbers in them, to JSON, to sequences of records |
| `target`       | what a target is, and which there are                                 |
| `worker`       | the child process: makes inputs and checks them                       |
| `harness`      | the parent: watches the child, saves what it found, begins it again   |
| `seeds`        | writes the seed corpus                                                |
| `slow_*`       | decoders written from the documented layouts                          |
| `publications` | small models and what was published of them                           |
| `targets/*`    | the targets                                                           |
"""
